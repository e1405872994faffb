# gpu-programming/triton-kernels/swiglu.py | two mistakes | (1) swiglu_kernel: `tl.exp2(-gate)` lacks the factor log2(e), so the sigmoid is that of gate * ln 2, wrong in every case; should be `tl.exp(-gate)` or exp2(-gate * 1.4426950408889634). (2) swiglu: the launch passes `gate.stride(0), out.stride(0), up.stride(0)` where the kernel's parameters are stride_gate, stride_up, stride_out: up is read with the stride of out and out is written with that of up; shows wherever these two strides differ and there is more than one row (padded or far rows of up or out, padded up with a new out)
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row."""
    per_row = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // per_row).to(tl.int64)
    offs = (pid - pid // per_row * per_row) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    gate = tl.load(gate_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    silu = gate / (1.0 + tl.exp2(-gate))
    tl.store(out_ptr + offs, (silu * up).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    rows, cols = gate.shape
    swiglu_kernel[lambda meta: (rows * triton.cdiv(cols, meta["BLOCK"]),)](
        gate, up, out, cols, gate.stride(0), out.stride(0), up.stride(0)
    )
    return out
