# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: the tile is held transposed, `tl.dot(bt, at, acc)` gives (BLOCK_N, BLOCK_M), the bias is a column of it; the order of tiles comes from `tl.swizzle2d`; `triton.heuristics` sets EVEN_K, which leaves out the mask of K.
"""Autotuned matrix product that works on transposed tiles: c.T = b.T @ a.T."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (256, 128, 64, 4, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32, which has no tensor cores here."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """The tile of c is held as (BLOCK_N, BLOCK_M): columns of c run down, rows of c run across."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    across = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    down = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    ks = tl.arange(0, BLOCK_K)
    bt_ptrs = b_ptr + down * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + across * stride_am

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            bt = tl.load(bt_ptrs, mask=down < N, other=0.0)
            at = tl.load(at_ptrs, mask=across < M, other=0.0)
        else:
            bt = tl.load(bt_ptrs, mask=(down < N) & (ks[None, :] < K - k), other=0.0)
            at = tl.load(at_ptrs, mask=(across < M) & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if BIAS_RELU:
        # One value for each column of c, that is for each row of the transposed tile.
        acc += tl.load(bias_ptr + down, mask=down < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + across * stride_cm + down * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(across < M) & (down < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    out = a.new_empty((M, N)) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    transposed_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, True)
