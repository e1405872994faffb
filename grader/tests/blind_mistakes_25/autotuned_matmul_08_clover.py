# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel ends with `tl.reshape(acc_t, (BLOCK_M, BLOCK_N))` to turn the (BLOCK_N, BLOCK_M) sums round; a reshape keeps the order of the elements and does not transpose, so values land in wrong places of every tile (transposed within it where it is square). It should be `tl.trans(acc_t)`.
"""Matrix product, autotuned. Each program works on the transposed problem: tile(C)^T = tile(B)^T tile(A)^T."""

import torch
import triton
import triton.language as tl

SHAPES = (
    # BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
    (128, 128, 64, 3, 8),
    (64, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 64, 64, 3, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for bm, bn, bk, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_tiles = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * n_tiles
    group_start = tile // per_group * GROUP_M
    group_rows = tl.minimum(tl.cdiv(M, BLOCK_M) - group_start, GROUP_M)
    inside = tile % per_group
    tile_row = group_start + inside % group_rows
    tile_col = inside // group_rows
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.jit
def grab(base, down, across, step_down, step_across, end_down, end_across):
    """One tile: index `down` runs from top to bottom, `across` from left to right; 0 outside the matrix."""
    inside = (down[:, None] < end_down) & (across[None, :] < end_across)
    return tl.load(base + down[:, None] * step_down + across[None, :] * step_across, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    col = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lane = tl.arange(0, BLOCK_K).to(tl.int64)

    # Columns of b run down and rows of a run across: both tiles are read as they lie in the transposed matrices,
    # which costs nothing, since only the two strides change places.
    acc_t = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        k = step * BLOCK_K + lane
        b_t = grab(b_ptr, col, k, stride_bn, stride_bk, N, K)
        a_t = grab(a_ptr, k, row, stride_ak, stride_am, K, M)
        acc_t = tl.dot(b_t, a_t, acc_t, input_precision="ieee")

    if BIAS_RELU:
        # One bias for each column of c, here for each row of the sums.
        bias = tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        acc_t = tl.maximum(acc_t + bias[:, None], 0.0)

    result = tl.reshape(acc_t, (BLOCK_M, BLOCK_N)).to(c_ptr.dtype.element_ty)
    where = c_ptr + row[:, None] * stride_cm + col[None, :] * stride_cn
    tl.store(where, result, mask=(row[:, None] < M) & (col[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
