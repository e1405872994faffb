# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `matmul_kernel`, `stride_bn.to(tl.int64)` (likewise `stride_cn.to(...)`, and am, cm) is used on kernel arguments: an argument equal to 1 is specialised to a constexpr integer, which has no `.to`, so Triton does not compile the kernel. It should widen the indices (`rows.to(tl.int64) * stride_am`, ...). Shows for a compiled kernel wherever one of these four strides is 1, as for a contiguous b or a contiguous `out`; the interpreter does not show it.
"""Matrix product, autotuned, tiles of c walked in groups of columns, bias and ReLU fused."""

import itertools

import torch
import triton
import triton.language as tl

SHAPES = [(128, 256, 8), (128, 128, 8), (64, 128, 4), (64, 64, 4)]

CONFIGS = [
    triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_N": 8},
        num_stages=stages,
        num_warps=warps,
    )
    for (block_m, block_n, warps), stages in itertools.product(SHAPES, (4, 3))
]


def fitting(configs, named_args, **kwargs):
    """Without tensor cores (fp32) only 64 x 64; otherwise tiles that the result fills."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """GROUP_N columns of tiles are walked row by row."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_N * tiles_m
    first = (tile // in_group) * GROUP_N
    width = tl.minimum(tiles_n - first, GROUP_N)
    within = tile % in_group
    return (within // width) * BLOCK_M, (first + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    # Rows of a, columns of b and all of c may lie far apart: these strides are taken as 64 bits.
    far_am = stride_am.to(tl.int64)
    far_bn = stride_bn.to(tl.int64)
    far_cm = stride_cm.to(tl.int64)
    far_cn = stride_cn.to(tl.int64)
    rows = (m + tl.arange(0, BLOCK_M))[:, None]
    columns = (n + tl.arange(0, BLOCK_N))[None, :]
    a_ks = tl.arange(0, BLOCK_K)[None, :]
    b_ks = tl.arange(0, BLOCK_K)[:, None]
    a_ptrs = a_ptr + rows * far_am + a_ks * stride_ak
    b_ptrs = b_ptr + b_ks * stride_bk + columns * far_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows < M) & (a_ks < left), other=0.0)
        b = tl.load(b_ptrs, mask=(b_ks < left) & (columns < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + rows * far_cm + columns * far_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (columns < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; fp32 sums, one rounding."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
