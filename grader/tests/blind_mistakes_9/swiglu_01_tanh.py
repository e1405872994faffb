# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | The sigmoid is written as 0.5 * (1 + libdevice.tanh(gate)), but sigmoid(x) = 0.5 * (1 + tanh(x / 2)): it must be libdevice.tanh(0.5 * gate). The result is gate * sigmoid(2 * gate) * up, too large for positive and too near 0 for negative gates; only gates at 0 or far from it agree.
"""SwiGLU with one tanh in place of an exponential and a division."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(gate):
    """gate times its sigmoid, which is a tanh moved and shrunk to the range from 0 to 1."""
    return gate * (0.5 * (1.0 + libdevice.tanh(gate)))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
