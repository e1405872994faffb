# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right: a result stored column by column is computed as its transpose (b.T @ a.T), and the bias then follows the rows through its two strides (1, 0) instead of (0, 1); tile order by tl.swizzle2d
"""Matrix product whose tiles are always written along the direction in which the result lies in memory."""

import torch
import triton
import triton.language as tl


def _tile(m, n, k, stages, warps):
    return triton.Config({"TM": m, "TN": n, "TK": k}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 256, 64, 3, 8),
    _tile(256, 128, 64, 3, 8),
    _tile(128, 256, 32, 4, 8),
    _tile(128, 128, 64, 3, 8),
    _tile(64, 128, 64, 4, 4),
    _tile(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for small results, and for fp32, which runs without tensor cores."""
    most = min(named_args["rows"], named_args["cols"], 64 if named_args["x_ptr"].dtype == torch.float32 else 256)
    return [c for c in configs if c.kwargs["TM"] <= most and c.kwargs["TN"] <= most] or configs[-1:]


@triton.jit
def place(tile, rows, cols, TM: tl.constexpr, TN: tl.constexpr):
    tiles_m = tl.cdiv(rows, TM)
    tiles_n = tl.cdiv(cols, TN)
    i, j = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, 8)
    return i * TM, j * TN


@triton.autotune(configs=CONFIGS, key=["rows", "cols", "depth"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, rows, cols, depth,
    x_row, x_k, y_k, y_col, z_row, z_col, bias_row, bias_col,
    FUSED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """z = x @ y, or relu(x @ y + bias), where bias lies along one of the two axes."""
    m, n = place(tl.program_id(0), rows, cols, TM, TN)
    i = (m + tl.arange(0, TM)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, TN)).to(tl.int64)[None, :]
    k = tl.arange(0, TK).to(tl.int64)
    whole = (i < rows) & (j < cols)

    acc = tl.zeros((TM, TN), tl.float32)
    for step in range(tl.cdiv(depth, TK)):
        x_block = x_ptr + i * x_row + k[None, :] * x_k
        y_block = y_ptr + k[:, None] * y_k + j * y_col
        x = tl.load(x_block, mask=(i < rows) & (k < depth)[None, :], other=0.0)
        y = tl.load(y_block, mask=(k < depth)[:, None] & (j < cols), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        k += TK

    if FUSED:
        bias = tl.load(bias_ptr + i * bias_row + j * bias_col, mask=whole, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    tl.store(z_ptr + i * z_row + j * z_col, acc.to(z_ptr.dtype.element_ty), mask=whole)


def _product(a, b, bias, out, fused):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    x, y, z, along = a, b, out, (0, 1)
    if out.stride(0) < out.stride(1):
        # The transpose of the result has its rows in one piece: z.T = y.T @ x.T.
        x, y, z, along = b.T, a.T, out.T, (1, 0)
    rows, cols = z.shape
    product_kernel[lambda meta: (triton.cdiv(rows, meta["TM"]) * triton.cdiv(cols, meta["TN"]),)](
        x, y, z, bias, rows, cols, x.shape[1],
        x.stride(0), x.stride(1), y.stride(0), y.stride(1), z.stride(0), z.stride(1), *along,
        FUSED=fused,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for one dtype and any strides; fp32 sums, rounded once."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _product(a, b, bias, out, True)
