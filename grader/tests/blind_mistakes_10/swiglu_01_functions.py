# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | silu is `gate / (1.0 + tl.exp2(-gate))`, a sigmoid to the base 2; must be tl.exp(-gate), or exp2(-gate * log2(e)). Shows in nearly every element whose gate is neither 0 nor large.
"""SwiGLU, with the activation in a function of its own, autotuned."""

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
    """Blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(gate):
    """gate * sigmoid(gate); 2^x is one instruction."""
    return gate / (1.0 + tl.exp2(-gate))


@triton.jit
def load_fp32(ptr, cols, n_cols):
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(0)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    gate = load_fp32(gate_ptr + row * stride_gate, cols, n_cols)
    up = load_fp32(up_ptr + row * stride_up, cols, n_cols)
    result = (silu(gate) * up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + cols, result, mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
