# gpu-programming/triton-kernels/swiglu.py | corner | The loop has `max(n_cols // BLOCK, 1)` steps, rounded down: the last partial block of a row longer than one block stays unwritten. It must be `tl.cdiv`.
"""SwiGLU; one program walks along one row."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=block // 256) for block in (1024, 2048, 4096)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    """out = gate / (1 + exp(-gate)) * up for one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    for block in range(max(n_cols // BLOCK, 1)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(gate_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (up * gate / (1.0 + tl.exp(-gate))).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    swiglu_kernel[(n_rows,)](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
