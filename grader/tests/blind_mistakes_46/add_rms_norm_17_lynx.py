# gpu-programming/triton-kernels/add_rms_norm.py | corner | Launch of `scale_kernel` in `add_rms_norm`: `LANES=WIDEST // 1024` is always 16, so `sums` of only the first 16 pieces of 2048 columns are added; it should be `LANES=triton.next_power_of_2(pieces)`. `out` is wrong (too large) for rows longer than 32768 columns only, as 40000 in fp32 and 131072 in bf16; `total` is right.
"""Residual addition and RMSNorm: short rows by one program each, long rows by many programs and two launches."""

import torch
import triton
import triton.language as tl

WIDEST = 16384  # a row up to this width stays in the registers of one program
PIECE = 2048  # of a longer row a program has so many columns
EPS = 1e-5

ROW_CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]
PIECE_CONFIGS = [triton.Config({}, num_warps=warps) for warps in (2, 4, 8)]


def whole(configs, named_args, **kwargs):
    """The configs of the narrowest tile that has all of a row."""
    size = max(triton.next_power_of_2(named_args["n_cols"]), 1024)
    return [config for config in configs if config.kwargs["TILE"] == size] or configs[-1:]


@triton.jit
def total_of(x_row, residual_row, cols, inside):
    """x + residual, rounded as it is stored, in fp32; 0 past the end."""
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=ROW_CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": whole})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def row_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i has row i, TILES tiles of TILE columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in tl.range(TILES):
        cols = tile * TILE + tl.arange(0, TILE)
        total = total_of(x_row, residual_row, cols, cols < n_cols)
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for tile in tl.range(TILES):
        cols = tile * TILE + tl.arange(0, TILE)
        inside = cols < n_cols
        total = total_of(x_row, residual_row, cols, inside)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_ptr + row * stride_total + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        result = (total * rstd * weight).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * stride_out + cols, result, mask=inside)


@triton.autotune(configs=PIECE_CONFIGS, key=["n_cols"])
@triton.jit
def add_kernel(
    x_ptr, residual_ptr, total_ptr, sums_ptr,
    n_cols, pieces, stride_x, stride_residual, stride_total, WIDTH: tl.constexpr,
):  # fmt: skip
    """The sum of one piece of a row, and the sum of its squares: sums is (n_rows, pieces), fp32."""
    row, piece = (tl.program_id(axis=0) // pieces).to(tl.int64), tl.program_id(axis=0) % pieces
    cols = piece * WIDTH + tl.arange(0, WIDTH)
    inside = cols < n_cols
    total = total_of(x_ptr + row * stride_x, residual_ptr + row * stride_residual, cols, inside)
    tl.store(total_ptr + row * stride_total + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
    tl.store(sums_ptr + row * pieces + piece, tl.sum(total * total, axis=0))


@triton.autotune(configs=PIECE_CONFIGS, key=["n_cols"])
@triton.jit
def scale_kernel(
    total_ptr, weight_ptr, sums_ptr, out_ptr, n_cols, pieces, stride_total, stride_out, eps,
    WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The result for one piece of a row, after add_kernel has stored the sums of all pieces."""
    row, piece = (tl.program_id(axis=0) // pieces).to(tl.int64), tl.program_id(axis=0) % pieces
    lanes = tl.arange(0, LANES)
    sums = tl.load(sums_ptr + row * pieces + lanes, mask=lanes < pieces, other=0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(sums, axis=0) / n_cols + eps)
    cols = piece * WIDTH + tl.arange(0, WIDTH)
    inside = cols < n_cols
    total = tl.load(total_ptr + row * stride_total + cols, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    result = (total * rstd * weight).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + cols, result, mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    if n_cols <= WIDEST:
        row_kernel[(n_rows,)](
            x, residual, weight, out, total,
            n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
        )  # fmt: skip
        return out, total
    pieces = triton.cdiv(n_cols, PIECE)
    sums = torch.empty((n_rows, pieces), device=x.device, dtype=torch.float32)
    add_kernel[(n_rows * pieces,)](
        x, residual, total, sums, n_cols, pieces, x.stride(0), residual.stride(0), total.stride(0), WIDTH=PIECE
    )
    scale_kernel[(n_rows * pieces,)](
        total, weight, sums, out, n_cols, pieces, total.stride(0), out.stride(0), EPS,
        WIDTH=PIECE, LANES=WIDEST // 1024,
    )  # fmt: skip
    return out, total
