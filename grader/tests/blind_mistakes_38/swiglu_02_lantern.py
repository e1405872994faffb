# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | in swiglu_kernel the exponent has the factor SLOPE = 1.702 of the quick GELU: tl.exp(-g * SLOPE) gives g * sigmoid(1.702 * g), not silu; shows in every case, in all elements but those with a large positive gate; it should be tl.exp(-g)
"""SwiGLU row by row: a program walks over one row of gate and up, a block of columns at a time."""

import torch
import triton
import triton.language as tl

# (columns of a block, warps): 8 to 32 numbers for each thread.
SHAPES = ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=2) for block, warps in SHAPES]

SLOPE = tl.constexpr(1.702)


def no_longer_than_a_row(configs, named_args, **kwargs):
    kept = []
    for config in configs:
        if config.kwargs["BLOCK"] <= named_args["n_cols"]:
            kept.append(config)
    return kept or configs[:1]


@triton.autotune(
    configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": no_longer_than_a_row}
)
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, gate_pitch, up_pitch, out_pitch, BLOCK: tl.constexpr):
    """out = swish(gate) * up; program i owns row i, and pitch is the distance of two rows in elements."""
    row = tl.program_id(0).to(tl.int64)
    gate_row = gate_ptr + row * gate_pitch
    up_row = up_ptr + row * up_pitch
    out_row = out_ptr + row * out_pitch
    lanes = tl.arange(0, BLOCK)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + lanes
        live = cols < n_cols
        g = tl.load(gate_row + cols, mask=live, other=0.0).to(tl.float32)
        u = tl.load(up_row + cols, mask=live, other=0.0).to(tl.float32)
        # exp becomes inf for a gate far below 0, and g / inf is 0.
        swish = g / (1.0 + tl.exp(-g * SLOPE))
        tl.store(out_row + cols, (swish * u).to(out_ptr.dtype.element_ty), mask=live)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, for two matrices with contiguous columns and rows any distance apart."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))
    swiglu_kernel[(n_rows,)](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
