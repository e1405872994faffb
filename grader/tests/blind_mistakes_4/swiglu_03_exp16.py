# gpu-programming/triton-kernels/swiglu.py | error | swiglu_kernel: gate is not converted to fp32 after the load, and tl.exp takes fp32 and fp64 only, so fp16 and bf16 do not compile; both operands must be converted with .to(tl.float32)
"""SwiGLU, one block of one row for each program."""

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
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    n_blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // n_blocks).to(tl.int64)
    cols = (pid % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
