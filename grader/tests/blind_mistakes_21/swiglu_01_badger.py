# gpu-programming/triton-kernels/swiglu.py | error | swiglu_kernel: `rows` is (ROWS,) and never made a column ([:, None]), so `rows * stride + cols` adds blocks of 4 and of BLOCK elements and Triton raises incompatible shapes at the first launch.
"""SwiGLU: silu(gate) * up, four rows and BLOCK columns for each program."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 256}, num_warps=4),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]
ROWS = tl.constexpr(4)


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """out = gate / (1 + exp(-gate)) * up on a tile of ROWS x BLOCK."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows < n_rows) & (cols < n_cols)
    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = gate / (1 + tl.exp(-gate)) * up
    tl.store(out_ptr + rows * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (triton.cdiv(n_rows, 4), triton.cdiv(n_cols, meta["BLOCK"]))
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
