# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm computes the number of tiles of a row on the host from its own width, min(next_power_of_2(n_cols), 8192), and not from the TILE of the config: configs with a narrower TILE leave the end of the row out. It should be cdiv(n_cols, TILE) in the kernel or by heuristics.
import torch
import triton
import triton.language as tl

WIDEST = 8192
CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": WIDEST}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), WIDEST)
    return [c for c in configs if size // 2 <= c.kwargs["TILE"] <= size]


@triton.jit
def summed(x_row, residual_row, cols, n_cols):
    """x + residual, rounded as it is stored."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual

    squares = tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        t = summed(x_row, residual_row, tile * TILE + lanes, n_cols).to(tl.float32)
        squares += t * t
    rms = tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        t = summed(x_row, residual_row, cols, n_cols)
        w = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(total_ptr + row * stride_total + cols, t, mask=cols < n_cols)
        normed = t.to(tl.float32) / rms * w
        tl.store(out_ptr + row * stride_out + cols, normed.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    n_rows, n_cols = x.shape
    out = x.new_empty((n_rows, n_cols)) if out is None else out
    total = x.new_empty((n_rows, n_cols)) if total is None else total
    tiles = triton.cdiv(n_cols, min(triton.next_power_of_2(n_cols), WIDEST))
    norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
        TILES=tiles,
    )  # fmt: skip
    return out, total
