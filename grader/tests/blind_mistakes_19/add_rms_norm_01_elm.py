# gpu-programming/triton-kernels/add_rms_norm.py | right | right: several rows a program in some configs, with row masks, a pruning function and heuristics; a row that fits one tile is read once.
"""Residual addition and RMS norm; a program owns ROWS rows and walks over them TILE columns at a time."""

import torch
import triton
import triton.language as tl

SHAPES = [
    (16, 64, 4),
    (8, 128, 4),
    (4, 512, 4),
    (2, 1024, 4),
    (1, 512, 2),
    (1, 1024, 4),
    (1, 2048, 4),
    (2, 4096, 16),
    (1, 4096, 8),
    (1, 8192, 8),
    (1, 16384, 16),
]
CONFIGS = [triton.Config({"ROWS": rows, "TILE": tile}, num_warps=warps) for rows, tile, warps in SHAPES]


def closest(configs, named_args, **kwargs):
    """Tiles at most twice as wide as the row, and for wide rows not the narrowest ones."""
    n_cols = named_args["n_cols"]
    kept = []
    for config in configs:
        tile = config.kwargs["TILE"]
        if tile < 2 * n_cols and 16 * tile >= min(n_cols, 16384):
            kept.append(config)
    return kept or configs[:2]


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": closest})
@triton.heuristics(
    {
        "WHOLE": lambda args: args["n_cols"] <= args["TILE"],
        "EXACT": lambda args: args["n_cols"] % args["TILE"] == 0 and args["n_rows"] % args["ROWS"] == 0,
    }
)
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    ROWS: tl.constexpr, TILE: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, TILE)[None, :]
    x_rows = x_ptr + rows * stride_x
    residual_rows = residual_ptr + rows * stride_residual
    out_rows = out_ptr + rows * stride_out
    total_rows = total_ptr + rows * stride_total

    if WHOLE:
        mask = (rows < n_rows) & (lanes < n_cols)
        x = tl.load(x_rows + lanes, mask=mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + lanes, mask=mask, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_rows + lanes, total, mask=mask)
        total = total.to(tl.float32)
        inverse = 1.0 / tl.sqrt(tl.sum(total * total, axis=1) / n_cols + eps)
        weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        tl.store(out_rows + lanes, (total * inverse[:, None] * weight).to(out_ptr.dtype.element_ty), mask=mask)
    else:
        squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            if EXACT:
                x = tl.load(x_rows + cols).to(tl.float32)
                residual = tl.load(residual_rows + cols).to(tl.float32)
            else:
                mask = (rows < n_rows) & (cols < n_cols)
                x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
                residual = tl.load(residual_rows + cols, mask=mask, other=0.0).to(tl.float32)
            total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
            squares += total * total
        inverse = 1.0 / tl.sqrt(tl.sum(squares, axis=1) / n_cols + eps)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
            residual = tl.load(residual_rows + cols, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            total = (x + residual).to(total_ptr.dtype.element_ty)
            tl.store(total_rows + cols, total, mask=mask)
            scaled = total.to(tl.float32) * inverse[:, None] * weight
            tl.store(out_rows + cols, scaled.to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual as total, and total / sqrt(mean(total * total) + 1e-5) * weight as out."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if n_rows > 0 and n_cols > 0:
        add_rms_norm_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
            x, residual, weight, out, total, n_rows, n_cols,
            x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
        )  # fmt: skip
    return out, total
