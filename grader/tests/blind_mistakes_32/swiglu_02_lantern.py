# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU in tiles of several rows and columns, so that short rows do not leave a program without work."""

import torch
import triton
import triton.language as tl


def _tile(rows, cols, warps):
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)


# Narrowest tile first: 16 numbers for each thread, except for the second, which has 8.
CONFIGS = [_tile(4, 512, 4), _tile(1, 1024, 4), _tile(2, 1024, 4), _tile(1, 2048, 4), _tile(1, 4096, 8)]


def fitting(configs, named_args, **kwargs):
    wide_enough = [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]]
    return wide_enough or configs[:1]


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def load_fp32(ptr, rows, stride, cols, inside):
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Programs go through the tiles of a band of ROWS rows from left to right, then to the next band."""
    across = tl.cdiv(n_cols, COLS)
    band = tl.program_id(axis=0) // across
    column_tile = tl.program_id(axis=0) % across

    rows = (band * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    cols = (column_tile * COLS + tl.arange(0, COLS))[None, :]
    inside = (rows < n_rows) & (cols < n_cols)

    gate = load_fp32(gate_ptr, rows, stride_gate, cols, inside)
    up = load_fp32(up_ptr, rows, stride_up, cols, inside)
    tl.store(out_ptr + rows * stride_out + cols, silu(gate) * up, mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices of one dtype, rows any number of elements apart."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0),
    )  # fmt: skip
    return out
