# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `matmul_kernel` (both functions): `tile = tl.reshape(sums.to(...), (BLOCK_M, BLOCK_N))` relabels the (BLOCK_N, BLOCK_M) sums of the transposed product instead of transposing them; it should be `tl.trans(sums.to(...))`. Wrong in every case but 1 x 1 (square tiles come out transposed, other tiles scrambled).
"""Matrix product whose programs sum a tile of the transposed result: (b.T) (a.T), with an epilogue if asked."""

import torch
import triton
import triton.language as tl

# rows of c, columns of c, step along K, stages, warps; the smallest one is last
SHAPES = (
    (128, 128, 64, 4, 8),
    (128, 128, 32, 4, 8),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; fp32, which has no tensor cores, gets the small ones."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c. Columns of b are the rows of the sums, rows of a their columns."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    rows_far = rows.to(tl.int64)
    cols_far = cols.to(tl.int64)

    # (BLOCK_N, BLOCK_K) of b.T and (BLOCK_K, BLOCK_M) of a.T
    bt_ptrs = b_ptr + cols_far[:, None] * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + rows_far[None, :] * stride_am
    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        left = K - k
        bt = tl.load(bt_ptrs, mask=(cols[:, None] < N) & (ks[None, :] < left), other=0.0)
        at = tl.load(at_ptrs, mask=(ks[:, None] < left) & (rows[None, :] < M), other=0.0)
        sums = tl.dot(bt, at, sums, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[:, None], 0.0)

    # Back to rows of c before the tile is stored.
    tile = tl.reshape(sums.to(c_ptr.dtype.element_ty), (BLOCK_M, BLOCK_N))
    c_ptrs = c_ptr + rows_far[:, None] * stride_cm + cols_far[None, :] * stride_cn
    tl.store(c_ptrs, tile, mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
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
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
