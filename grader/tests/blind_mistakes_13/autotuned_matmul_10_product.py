# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `acc = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32)` has the shape of a tile of a, so `tl.dot(a, b, acc, ...)` refuses it in every config (BLOCK_K != BLOCK_N); it should be `(BLOCK_M, BLOCK_N)`.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import itertools

import torch
import triton
import triton.language as tl
from triton import cdiv


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# every pair of sides, with 8 warps from 128 x 128 on; the last one is 64 x 64
CONFIGS = [
    _config(side_m, side_n, 32, 4, 8 if side_m * side_n >= 128 * 128 else 4)
    for side_m, side_n in itertools.product([128, 64], [256, 128, 64])
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_cols = tl.cdiv(N, BLOCK_N)
    n_group = GROUP_M * n_cols
    top = tile // n_group * GROUP_M
    tall = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - top)
    nth = tile % n_group
    row = top + nth % tall
    col = nth // tall
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    r = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    c = n.to(tl.int64) + tl.arange(0, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = (k0 + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + r[:, None] * stride_am + k[None, :] * stride_ak,
            mask=(r[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_bk + c[None, :] * stride_bn,
            mask=(k[:, None] < K) & (c[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc += tl.load(bias_ptr + c, mask=c < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)

    tl.store(
        c_ptr + r[:, None] * stride_cm + c[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(r[:, None] < M) & (c[None, :] < N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (cdiv(M, meta["BLOCK_M"]) * cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
