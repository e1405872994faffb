# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | the gate is not multiplied by its sigmoid (`1.0 / (1.0 + tl.exp(-gate)) * up`, which is GLU); must be gate / (1 + exp(-gate)) * up. Wrong for every element whose gate is not 1.
"""SwiGLU: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    # of a large negative gate exp(-gate) is inf, and 1 / inf is 0
    result = 1.0 / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
