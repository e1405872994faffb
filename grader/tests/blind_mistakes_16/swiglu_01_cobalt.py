# gpu-programming/triton-kernels/swiglu.py | error | In swiglu_kernel gate is not converted to fp32 after the load, and tl.exp takes only fp32 and fp64, so for fp16 and bf16 the kernel does not compile (fp32 is right). Both loads should be followed by .to(tl.float32).
"""SwiGLU: one program for each row, which goes through its columns block by block."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(z):
    return z / (1.0 + tl.exp(-z))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    """out = silu(gate) * up for one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(gate_ptr + cols, mask=mask, other=0.0)
        up = tl.load(up_ptr + cols, mask=mask, other=0.0)
        result = silu(gate) * up
        tl.store(out_ptr + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    swiglu_kernel[(n_rows,)](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
