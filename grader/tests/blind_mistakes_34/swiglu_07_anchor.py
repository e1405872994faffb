# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | in swiglu_kernel, `silu(g * u)` applies the activation to the product of both: it stores g * u * sigmoid(g * u) and not g * sigmoid(g) * u; wrong at every size and dtype (only elements with up near 1, or a product near 0, are nearly right). It should be `silu(g) * u`
"""SwiGLU with a fixed number of programs for each row, which step through its blocks."""

import torch
import triton
import triton.language as tl

MOST_PER_ROW = 256

CONFIGS = [
    triton.Config({"BLOCK": each * warps}, num_warps=warps) for warps in (4, 8) for each in (256, 512)
]


def fitting(configs, named_args, **kwargs):
    """No block that is longer than a row, except the first for the shortest rows."""
    return [c for c in configs if c.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x * sigmoid(x): of a very negative x the denominator is inf, and the quotient 0."""
    return x / (1.0 + tl.exp(-x))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """Axis 0 of the grid counts rows; program j of a row takes its blocks j, j + programs, and so on."""
    row = tl.program_id(axis=0).to(tl.int64)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    lanes = tl.arange(0, BLOCK)
    begin = tl.program_id(axis=1) * BLOCK
    step = tl.num_programs(axis=1) * BLOCK

    for start in range(begin, n_cols, step):
        cols = start + lanes
        keep = cols < n_cols
        g = tl.load(gate_row + cols, mask=keep, other=0.0).to(tl.float32)
        u = tl.load(up_row + cols, mask=keep, other=0.0).to(tl.float32)
        tl.store(out_row + cols, silu(g * u).to(out_ptr.dtype.element_ty), mask=keep)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for matrices with contiguous columns and any row stride."""
    n_rows, n_cols = gate.shape
    out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype) if out is None else out
    grid = lambda meta: (n_rows, min(triton.cdiv(n_cols, meta["BLOCK"]), MOST_PER_ROW))
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
