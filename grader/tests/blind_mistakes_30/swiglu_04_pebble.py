# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In the helper silu, exp(-x) is written as exp2(-x * ln 2) with ln 2 = 0.6931, but exp(x) = exp2(x * log2(e)) with log2(e) = 1.4427; the result is x * sigmoid(0.48 * x) * up. It shows in every case, for all gates but 0 and those far from it on the positive side. The constant should be 1.4426950408889634.
"""SwiGLU with the exponential that the GPU has, exp2."""

import torch
import triton
import triton.language as tl

# 8 or 16 numbers for each thread
CONFIGS = [
    triton.Config({"BLOCK": 32 * warps * each}, num_warps=warps) for warps in (4, 8) for each in (8, 16)
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)) in fp32"""
    return x / (1.0 + tl.exp2(x * -0.6931471805599453))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    gate = tl.load(gate_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + cols, silu(gate) * up, mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, one program for each block of each row: rows along axis 0, blocks along axis 1."""
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    rows, cols = gate.shape
    swiglu_kernel[lambda meta: (rows, triton.cdiv(cols, meta["BLOCK"]))](
        gate, up, out, cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
