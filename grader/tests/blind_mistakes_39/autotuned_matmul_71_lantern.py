# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel computes the tile transposed, as (BLOCK_N, BLOCK_M), and before the store turns it with tl.reshape(..., (BLOCK_M, BLOCK_N)) where tl.trans is needed: reshape keeps the row-major order of the numbers, so a square tile is stored transposed in place and a tile of other shape is scrambled (in the tails zeros of absent rows or columns arrive in existing ones). Both functions, every size but M = N = 1. It should be tl.trans(...).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    shape = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(shape, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Leave out tiles larger than the result, and for fp32 all but the small ones."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    group_tiles = tl.cdiv(N, BLOCK_N) * GROUP_M
    group = tile // group_tiles
    top = group * GROUP_M
    height = tl.minimum(tiles_m - top, GROUP_M)
    rank = tile - group * group_tiles
    return (top + rank % height) * BLOCK_M, (rank // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c for each program, computed from the other side: transposed c is transposed b @ transposed a."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)

    # Both operands as the product wants them: bt is (BLOCK_N, BLOCK_K), at is (BLOCK_K, BLOCK_M).
    bt_ptrs = b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + rows[None, :] * stride_am
    col_exists = cols[:, None] < N
    row_exists = rows[None, :] < M

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        bt = tl.load(bt_ptrs, mask=col_exists & (ks[None, :] < left), other=0.0)
        at = tl.load(at_ptrs, mask=row_exists & (ks[:, None] < left), other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if BIAS_RELU:
        # Columns of c run down the tile here, and the bias with them.
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    c = tl.reshape(acc.to(c_ptr.dtype.element_ty), (BLOCK_M, BLOCK_N))
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
