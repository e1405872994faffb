# gpu-programming/triton-kernels/swiglu.py | corner | in swiglu_kernel `g = tl.minimum(tl.maximum(g, -80.0), 80.0)` limits gate itself, which is also the factor in front of the sigmoid: for gate above 80 the result is 80 * up in place of gate * up (below -80 it is -80 * exp(-80) * up, about 1e-33, in place of a smaller number, which only fp32 can show); right for all gates from -80 to 80; limit only the argument of exp, or nothing, as gate / (1 + exp(-gate)) is right without
"""SwiGLU row by row: a program walks along its row, one block after the other."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
    for block, warps, stages in ((1024, 4, 1), (2048, 4, 2), (4096, 8, 1), (4096, 8, 3))
]


def fitting(configs, named_args, **kwargs):
    """No block longer than the row, except the shortest one."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] <= n_cols or c.kwargs["BLOCK"] == 1024]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """Program i computes row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    gates = gate_ptr + i * stride_gate
    ups = up_ptr + i * stride_up
    outs = out_ptr + i * stride_out
    lanes = tl.arange(0, BLOCK)
    for start in range(0, n_cols, BLOCK):
        j = start + lanes
        live = j < n_cols
        g = tl.load(gates + j, mask=live, other=0.0).to(tl.float32)
        u = tl.load(ups + j, mask=live, other=0.0).to(tl.float32)
        g = tl.minimum(tl.maximum(g, -80.0), 80.0)
        silu = g / (1.0 + tl.exp(-g))
        tl.store(outs + j, (silu * u).to(out_ptr.dtype.element_ty), mask=live)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; the result goes to `out` where one is given."""
    assert gate.shape == up.shape, f"{gate.shape} and {up.shape}"
    rows, cols = gate.shape
    result = gate.new_empty((rows, cols)) if out is None else out
    swiglu_kernel[(rows,)](gate, up, result, cols, gate.stride(0), up.stride(0), result.stride(0))
    return result
