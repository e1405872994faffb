# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `bias_relu`, `tl.where(sums > 0, sums + bias, 0.0)` decides by the sum before the bias; it should be `tl.maximum(sums + bias[None, :], 0.0)`. `matmul_bias_relu` is wrong in all cases, wherever the bias changes the sign: positive results are lost and negative ones stay; `matmul` is right.
"""a @ b by tiles with tl.swizzle2d for their order; bias and ReLU are a function of their own."""

import torch
import triton
import triton.language as tl

#         M    N    K  stages warps
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    m, n = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= m and c.kwargs["BLOCK_N"] <= n]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile: row by row first, then turned into columns within groups of rows."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // across, tile % across, down, across, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def product(a_ptrs, b_ptrs, row_ok, col_ok, K, stride_ak, stride_bk,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Sum over all of K of the tiles that begin at a_ptrs and b_ptrs, in fp32."""
    lane = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=row_ok & (lane < left)[None, :], other=0)
        b = tl.load(b_ptrs, mask=(lane < left)[:, None] & col_ok, other=0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return sums


@triton.jit
def bias_relu(sums, bias_ptr, cols, N):
    """The epilogue, in fp32: one bias for each column, then no value below 0."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0).to(tl.float32)
    return tl.where(sums > 0, sums + bias, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program pid stores one tile of c."""
    tl.assume(K > 0)
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
    sums = product(a_ptrs, b_ptrs, rows < M, cols < N, K, stride_ak, stride_bk, BLOCK_M, BLOCK_N, BLOCK_K)
    if EPILOGUE:
        sums = bias_relu(sums, bias_ptr, cols, N)
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn,
        sums.to(c_ptr.dtype.element_ty),
        mask=(rows < M) & (cols < N),
    )


def _launch(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype and any strides."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), with a bias for each column."""
    return _launch(a, b, bias, out, True)
