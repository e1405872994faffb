# gpu-programming/triton-kernels/swiglu.py | contract | multiply_kernel: it reads silu(gate) back from out, multiplies it by up and stores it to out again; the autotuner runs it many times on the real out, so up is multiplied in more than once, and in 16 bits silu is rounded before the product; it must be one kernel that never reads out
"""SwiGLU in two steps: silu first, then the product."""

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
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def silu_kernel(gate_ptr, out_ptr, n_cols, stride_gate, stride_out, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    silu = gate / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * stride_out + cols, silu.to(out_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def multiply_kernel(up_ptr, out_ptr, n_cols, stride_up, stride_out, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    here = out_ptr + row * stride_out + cols
    silu = tl.load(here, mask=mask, other=0.0).to(tl.float32)
    tl.store(here, (silu * up).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    silu_kernel[grid](gate, out, n_cols, gate.stride(0), out.stride(0))
    multiply_kernel[grid](up, out, n_cols, up.stride(0), out.stride(0))
    return out
