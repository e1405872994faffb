# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `product_kernel`, `acc = tl.dot(x, tl.reshape(w, (BK, BN)), acc, input_precision="ieee")` should be `tl.dot(x, tl.trans(w), acc, ...)`: w is loaded as a BN x BK block (columns of b as its rows), and reshape keeps the order of the elements where a transposition is needed. Wrong in both functions in all cases but N = K = 1.
"""Matrix product on tiles of c, with an optional bias and ReLU."""

import torch
import triton
import triton.language as tl

SHAPES = (
    # rows, columns, step along k, stages, warps
    (128, 128, 64, 3, 8),
    (128, 128, 32, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are not larger than the result, and at most 64 wide for fp32."""
    limit = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    limit = min(limit, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile, in groups of GROUP rows of tiles."""
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    group = tile // (GROUP * tiles_n)
    top = group * GROUP
    height = min(tiles_m - top, GROUP)
    inside = tile - group * (GROUP * tiles_n)
    return (top + inside % height) * BM, (inside // height) * BN


@triton.jit
def block(ptr, lines, ks, n_lines, K, stride_line, stride_k):
    """Some lines of a matrix (rows of a, columns of b) as rows of a block, the steps along k as its columns."""
    inside = (lines[:, None] < n_lines) & (ks[None, :] < K)
    return tl.load(ptr + lines[:, None] * stride_line + ks[None, :] * stride_k, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn, FUSED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """y = x @ w, or relu(x @ w + bias); both operands are read line by line along k."""
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    rows = (m + tl.arange(0, BM)).to(tl.int64)
    cols = (n + tl.arange(0, BN)).to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = block(x_ptr, rows, ks, M, K, stride_xm, stride_xk)
        w = block(w_ptr, cols, ks, N, K, stride_wn, stride_wk)
        acc = tl.dot(x, tl.reshape(w, (BK, BN)), acc, input_precision="ieee")
    if FUSED:
        shift = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + shift[None, :], 0.0)
    y_ptrs = y_ptr + rows[:, None] * stride_ym + cols[None, :] * stride_yn
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _product(x, w, bias, out, fused):
    M, K = x.shape
    N = w.shape[1]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)

    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    product_kernel[grid](x, w, out, bias, M, N, K, *x.stride(), *w.stride(), *out.stride(), FUSED=fused)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype and any strides."""
    return _product(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _product(a, b, bias, out, fused=True)
