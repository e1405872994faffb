# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `accumulate` returns `acc + tl.dot(x, y, acc, ...)`, but tl.dot with a third argument already returns the sum of acc and the product: what was summed before counts twice in every step along K, so the first blocks of K are multiplied by powers of 2; wrong in both functions whenever K > BLOCK_K (32 or 64), right for one step only; it should return `tl.dot(x, y, acc, ...)`
"""Matrix product in panels: a few columns of tiles at a time, from the top of c to its bottom."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, panel, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "PANEL": panel}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 4, 3, 8),
    _config(256, 128, 64, 8, 3, 8),
    _config(128, 128, 32, 8, 4, 8),
    _config(128, 64, 32, 8, 4, 4),
    _config(64, 64, 32, 8, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def in_panels(tile, M, N, PANEL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Tile row and tile column; the last panel may be narrower than PANEL tiles."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    left = tile // (PANEL * down) * PANEL
    width = min(across - left, PANEL)
    within = tile % (PANEL * down)
    return within // width, left + within % width


@triton.jit
def block(ptr, rows, cols, row_step, col_step, last_row, last_col):
    """A block of a matrix of last_row x last_col elements, 0 outside of it."""
    inside = (rows[:, None] < last_row) & (cols[None, :] < last_col)
    return tl.load(ptr + rows[:, None] * row_step + cols[None, :] * col_step, mask=inside, other=0.0)


@triton.jit
def accumulate(acc, x, y):
    """One step along K: fp32 sums, and no TF32 where the operands are fp32."""
    return acc + tl.dot(x, y, acc, input_precision="ieee")


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PANEL: tl.constexpr,
):  # fmt: skip
    i, j = in_panels(tl.program_id(0), M, N, PANEL, BLOCK_M, BLOCK_N)
    rows = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        x = block(a_ptr, rows, ks, stride_am, stride_ak, M, K)
        y = block(b_ptr, ks, cols, stride_bk, stride_bn, K, N)
        acc = accumulate(acc, x, y)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]) * triton.cdiv(M, meta["BLOCK_M"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
