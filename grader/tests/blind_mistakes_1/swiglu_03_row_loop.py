# gpu-programming/triton-kernels/swiglu.py | contract | The store is masked with `cols < stride_out` (the distance of the rows of out) where it has to be cols < n_cols, so the elements between the rows of a padded out are overwritten with 0 (and past the last row, outside of out) while all results are right | "do not write to the space between rows"; only for an out whose row stride is larger than n_cols, in the columns that the last block covers
"""SwiGLU: one program walks along a row."""

import torch
import triton
import triton.language as tl

CONFIGS = []
for size in (1024, 2048, 4096):
    CONFIGS += [triton.Config({"BLOCK": size}, num_warps=size // 512)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        gate = tl.load(gate_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        sigmoid = 1.0 / (1.0 + tl.exp(-gate))
        tl.store(out_ptr + cols, (gate * sigmoid * up).to(out_ptr.dtype.element_ty), mask=cols < stride_out)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    swiglu_kernel[(gate.shape[0],)](
        gate, up, out, gate.shape[1], gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
