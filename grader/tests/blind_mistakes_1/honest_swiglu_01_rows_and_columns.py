# gpu-programming/triton-kernels/swiglu.py | honest | a two-dimensional tile of 4 rows x BLOCK columns on a grid of two axes (columns first), and a sigmoid from exp(-abs(gate)) with a select, which never overflows
"""SwiGLU: a program owns a tile of four rows."""

import torch
import triton
import triton.language as tl

ROWS = tl.constexpr(4)

CONFIGS = [
    triton.Config({"BLOCK": 256}, num_warps=4),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def tile_of(rows, cols, stride):
    return rows[:, None] * stride + cols[None, :]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    up = tl.load(up_ptr + tile_of(rows, cols, stride_up), mask=inside, other=1.0).to(tl.float32)
    gate = tl.load(gate_ptr + tile_of(rows, cols, stride_gate), mask=inside, other=1.0).to(tl.float32)
    small = tl.exp(-tl.abs(gate))
    sigmoid = tl.where(gate < 0.0, small, 1.0) / (1.0 + small)
    result = gate * sigmoid * up
    tl.store(out_ptr + tile_of(rows, cols, stride_out), result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (triton.cdiv(n_rows, 4), triton.cdiv(n_cols, meta["BLOCK"]))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
