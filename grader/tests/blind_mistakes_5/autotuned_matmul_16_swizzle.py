# labs/lab3_autotuned_matmul/autotuned_matmul.py | honest | 2-D grid with tl.swizzle2d, K walked from its end, epilogue in a helper.
"""Matrix product: tl.swizzle2d orders the tiles, K is walked from its end, a helper does the epilogue."""

import torch
import triton
import triton.language as tl

TILES = ((128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (64, 128, 64, 3, 4), (64, 64, 64, 3, 4))
CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 4}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    limit = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(limit, named_args["M"], named_args["N"])
    return [config for config in configs if max(config.kwargs["BM"], config.kwargs["BN"]) <= limit] or configs[-1:]


@triton.jit
def relu_of(acc, bias_ptr, cols, N):
    shifted = acc + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    return tl.where(shifted < 0.0, 0.0, shifted)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    ADD_BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    ti, tj = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), GROUP)
    rows = ti.to(tl.int64) * BM + tl.arange(0, BM)
    cols = tj.to(tl.int64) * BN + tl.arange(0, BN)
    steps = tl.cdiv(K, BK)
    ks = (steps - 1) * BK + tl.arange(0, BK).to(tl.int64)
    a_ptrs = a_ptr + (rows[:, None] * am + ks[None, :] * ak)
    b_ptrs = b_ptr + (ks[:, None] * bk + cols[None, :] * bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(steps):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        ks -= BK
        a_ptrs -= BK * ak
        b_ptrs -= BK * bk
    if ADD_BIAS:
        acc = relu_of(acc, bias_ptr, cols, N)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * cm + cols[None, :] * cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _product(a, b, bias, out):
    M, K = a.shape
    N = b.shape[1]
    result = out
    if result is None:
        result = a.new_empty((M, N))
    product_kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](
        a, b, a if bias is None else bias, result, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), result.stride(0), result.stride(1),
        ADD_BIAS=bias is not None,
    )  # fmt: skip
    return result


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; the result goes to `out` where one is given."""
    return _product(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _product(a, b, bias, out)
