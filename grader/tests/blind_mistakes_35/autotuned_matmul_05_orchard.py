# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In matmul_kernel `c = acc.to(c_ptr.dtype.element_ty)` stands before the epilogue, so matmul_bias_relu adds the bias to a rounded sum and rounds again: shows in fp16 and bf16, not in fp32; bias and ReLU belong on the fp32 acc, the conversion after them. (2) The store uses `rows[:, None] * stride_cm + cols[None, :]` without stride_cn: shows in both functions, in every dtype, where out has columns that are not side by side (transposed, or every second column of a wider matrix); should be `cols[None, :] * stride_cn`.
"""Matrix product tile by tile; tiles are walked in bands of a few columns."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 6}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= widest]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """A band is GROUP_N tiles wide and as high as c; inside it the column changes fastest."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_band = GROUP_N * tiles_m
    left = tile // in_band * GROUP_N
    width = min(tiles_n - left, GROUP_N)
    within = tile % in_band
    return within // width * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_block = a_ptr + (rows[:, None] * stride_am + ks[None, :] * stride_ak)
    b_block = b_ptr + (ks[:, None] * stride_bk + cols[None, :] * stride_bn)
    has_row = (rows < M)[:, None]
    has_col = (cols < N)[None, :]

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        has_k = ks < K - done
        a = tl.load(a_block, mask=has_row & has_k[None, :], other=0.0)
        b = tl.load(b_block, mask=has_k[:, None] & has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block += BLOCK_K * stride_ak
        b_block += BLOCK_K * stride_bk

    c = acc.to(c_ptr.dtype.element_ty)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        c = tl.maximum(c + bias[None, :], 0.0)

    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], c, mask=has_row & has_col)


def _launch(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def tiles(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[tiles](
        a, b, out, bias,
        M, N, K,
        *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
