# gpu-programming/triton-kernels/add_rms_norm.py | right | Nothing is wrong. Unusual: persistent programs (at most 2048) that go over groups of rows with `tl.num_programs`; two-dimensional tiles of AREA numbers whose shape ROWS x WIDTH comes from heuristics (many short rows, or a piece of a long one); the sum by `tl.reduce` with its own combine function; rows that fit a tile are read once (STEPS == 1), longer ones twice.
"""Residual addition and RMS normalisation by persistent programs, on tiles of one or several rows."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
PROGRAMS = 2048  # at most; each goes on with further rows until none are left

# A tile has AREA numbers, 8 to 32 for each thread: one piece of a long row, or many short rows.
CONFIGS = [
    triton.Config({"AREA": area}, num_warps=warps)
    for area, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles of about one row."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["AREA"] <= 2 * size]


def width_of(args):
    """Columns of a tile: the whole row, if the tile has room for it."""
    return min(max(triton.next_power_of_2(args["n_cols"]), 16), args["AREA"])


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def sums_of(x_rows, residual_rows, cols, inside):
    """x + residual in the dtype of x, and its fp32 value; 0 outside."""
    x = tl.load(x_rows + cols, mask=inside, other=0.0)
    residual = tl.load(residual_rows + cols, mask=inside, other=0.0)
    rounded = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
    return rounded, rounded.to(tl.float32)


@triton.jit
def inverse_rms(squares, n_cols, eps):
    """1 / sqrt(mean + eps) of each row, as a column."""
    return tl.rsqrt(tl.reduce(squares, 1, plus) / n_cols + eps)[:, None]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({
    "WIDTH": width_of,
    "ROWS": lambda args: args["AREA"] // width_of(args),
    "STEPS": lambda args: triton.cdiv(args["n_cols"], width_of(args)),
})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    AREA: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Program i owns the row groups i, i + programs, i + 2 * programs, ..., of ROWS rows each."""
    lanes = tl.arange(0, WIDTH)[None, :]
    groups = (n_rows - 1) // ROWS + 1
    for group in range(tl.program_id(axis=0), groups, tl.num_programs(axis=0)):
        rows = (group * ROWS + tl.arange(0, ROWS).to(tl.int64))[:, None]
        exists = rows < n_rows
        x_rows = x_ptr + rows * stride_x
        residual_rows = residual_ptr + rows * stride_residual
        out_rows = out_ptr + rows * stride_out
        total_rows = total_ptr + rows * stride_total
        if STEPS == 1:
            inside = exists & (lanes < n_cols)
            rounded, total = sums_of(x_rows, residual_rows, lanes, inside)
            weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
            result = total * inverse_rms(total * total, n_cols, eps) * weight
            tl.store(total_rows + lanes, rounded, mask=inside)
            tl.store(out_rows + lanes, result.to(out_ptr.dtype.element_ty), mask=inside)
        else:
            squares = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
            for step in range(STEPS):
                cols = step * WIDTH + lanes
                rounded, total = sums_of(x_rows, residual_rows, cols, exists & (cols < n_cols))
                squares += total * total
            inverse = inverse_rms(squares, n_cols, eps)
            for step in range(STEPS):
                cols = step * WIDTH + lanes
                inside = exists & (cols < n_cols)
                rounded, total = sums_of(x_rows, residual_rows, cols, inside)
                weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                result = total * inverse * weight
                tl.store(total_rows + cols, rounded, mask=inside)
                tl.store(out_rows + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total, in this order: the normalised rows of x + residual, and x + residual itself.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total

    def grid(meta):
        return (min(triton.cdiv(n_rows, meta["ROWS"]), PROGRAMS),)

    if n_rows > 0 and n_cols > 0:
        add_rms_norm_kernel[grid](
            x, residual, weight, out, total, n_rows, n_cols,
            x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
        )  # fmt: skip
    return out, total
