# gpu-programming/triton-kernels/add_rms_norm.py | contract | In `add_rms_norm`: `total = torch.empty(x.shape, device=x.device, dtype=torch.float32)` should have `dtype=x.dtype`: a result that is not given is a new tensor of the dtype of the inputs. Shows in fp16 and bf16 where `total` is not given: total comes back in fp32, with right numbers.
"""Residual addition and RMSNorm by tiles of one long row or of several short ones, autotuned."""

import torch
import triton
import triton.language as tl

# Numbers of a program, and its warps: 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"NUMBERS": numbers}, num_warps=warps)
    for numbers, warps in ((1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where that is possible, and not much more than it."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size <= config.kwargs["NUMBERS"] <= 2 * size] or configs[-1:]


def width(args):
    """Columns of a tile."""
    return min(triton.next_power_of_2(args["n_cols"]), args["NUMBERS"])


@triton.jit
def total_of(x_ptrs, residual_ptrs, inside):
    """x + residual in fp32, 0 where there is no element."""
    x = tl.load(x_ptrs, mask=inside, other=0.0)
    residual = tl.load(residual_ptrs, mask=inside, other=0.0)
    return x.to(tl.float32) + residual.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({
    "COLS": width,
    "ROWS": lambda args: args["NUMBERS"] // width(args),
    "TILES": lambda args: triton.cdiv(args["n_cols"], width(args)),
})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    NUMBERS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i has ROWS rows from i * ROWS on, COLS columns of them at a time, TILES times."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    residual_rows = residual_ptr + rows * stride_residual
    out_rows = out_ptr + rows * stride_out
    total_rows = total_ptr + rows * stride_total
    present = rows < n_rows

    squares = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for tile in tl.range(TILES):
        here = tile * COLS + cols
        total = total_of(x_rows + here, residual_rows + here, present & (here < n_cols))
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=1, keep_dims=True) / n_cols + eps)

    for tile in tl.range(TILES):
        here = tile * COLS + cols
        inside = present & (here < n_cols)
        total = total_of(x_rows + here, residual_rows + here, inside)
        tl.store(total_rows + here, total.to(total_ptr.dtype.element_ty), mask=inside)
        weight = tl.load(weight_ptr + here, mask=here < n_cols, other=0.0).to(tl.float32)
        tl.store(out_rows + here, (total * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    n_rows, n_cols = x.shape
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)  # noqa: E731
    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
