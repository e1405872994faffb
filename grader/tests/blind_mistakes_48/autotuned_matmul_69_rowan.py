# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `step_a = stride_am.to(tl.int64)` and `step_c = stride_cm.to(tl.int64)` in `matmul_kernel`: an integer argument that is 1 is a constant and has no `.to`. The rows should be converted instead: `rows = (i * BM + ...).to(tl.int64)`. It fails in both functions where the row stride of a or out is 1: a or out transposed, a contiguous a with K = 1, a contiguous out with N = 1; right otherwise.
"""A @ B and relu(A @ B + bias), autotuned; offsets of rows are 64 bits wide from the start."""

import torch
import triton
import triton.language as tl

TILES = {
    "wide": (128, 256, 64),
    "tall": (256, 128, 64),
    "square": (128, 128, 64),
    "low": (64, 128, 64),
    "small": (64, 64, 32),
}
WARPS = {"wide": 8, "tall": 8, "square": 4, "low": 4, "small": 4}
CONFIGS = [
    triton.Config({"BM": tile[0], "BN": tile[1], "BK": tile[2]}, num_stages=3, num_warps=WARPS[name])
    for name, tile in TILES.items()
]


def fitting(configs, named_args, **kwargs):
    """The small tile for fp32; else no tile with more rows or columns than the result."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    M, N = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["BM"] <= M and c.kwargs["BN"] <= N]
    return kept or configs[-1:]


@triton.jit
def grouped(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Tile row and tile column of program pid: GROUP rows of tiles at a time, column by column."""
    size = GROUP * tiles_n
    first = pid // size * GROUP
    rows_here = tl.minimum(tiles_m - first, GROUP)
    return first + pid % size % rows_here, pid % size // rows_here


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of c = a @ b, or of relu(a @ b + bias)."""
    i, j = grouped(tl.program_id(axis=0), tl.cdiv(M, BM), tl.cdiv(N, BN), 8)
    # Rows of a and c may lie far apart: their distance is int64, and so is every product with it.
    step_a = stride_am.to(tl.int64)
    step_c = stride_cm.to(tl.int64)
    rows = i * BM + tl.arange(0, BM)[:, None]
    cols = (j * BN + tl.arange(0, BN)[None, :]).to(tl.int64)
    k_row, k_col = tl.arange(0, BK)[None, :], tl.arange(0, BK)[:, None]

    a_ptrs = a_ptr + rows * step_a + k_row * stride_ak
    b_ptrs = b_ptr + k_col * stride_bk + cols * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=(rows < M) & (k_row < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(k_col < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk

    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0.0, acc, 0.0)
    c_ptrs = c_ptr + rows * step_c + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
