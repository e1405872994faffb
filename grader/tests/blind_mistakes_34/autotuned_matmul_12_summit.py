# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel does not compile for a GPU where b.stride(0) is not 1 (b as NN, padded or every second column): `if stride_bk == 1` is then a condition at run time, and its two branches give b_at and b_in blocks of different shapes, (BLOCK_N, BLOCK_K) and (BLOCK_K, BLOCK_N): mismatched types between then and else. With b.stride(0) = 1 (NT) Triton makes the stride a constant and it compiles; the interpreter runs it and is right. Both functions. Should choose by a tl.constexpr argument, or use one shape, ks as a column and cols as a row
"""Matrix product whose tiles of b are read along the direction in which b lies in memory."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_in = (rows < M)[:, None] & (ks < K)[None, :]
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_in, other=0.0)
        # The last axis of a block is the one along which b is contiguous.
        if stride_bk == 1:
            b_at = b_ptr + cols[:, None] * stride_bn + ks[None, :]
            b_in = (cols < N)[:, None] & (ks < K)[None, :]
        else:
            b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
            b_in = (ks < K)[:, None] & (cols < N)[None, :]
        b = tl.load(b_at, mask=b_in, other=0.0)
        if stride_bk == 1:
            b = tl.trans(b)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        down = triton.cdiv(M, meta["BLOCK_M"])
        across = triton.cdiv(N, meta["BLOCK_N"])
        return (down * across,)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, b as NN or NT."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), b as NN or NT."""
    return _launch(a, b, bias, out, bias_relu=True)
