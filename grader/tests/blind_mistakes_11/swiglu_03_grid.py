# gpu-programming/triton-kernels/swiglu.py | error | tl.sigmoid is called on the gate in its own dtype (`tl.sigmoid(gate)` directly after the load), and Triton's exp takes fp32 and fp64 only; must convert to fp32 after the load. Shows in fp16 and bf16: the kernel does not compile. fp32 is right.
"""SwiGLU on a grid of rows and blocks."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    wanted = [c for c in configs if c.kwargs["BLOCK"] <= named_args["n_cols"]]
    return wanted if wanted else configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask)
    silu = gate.to(tl.float32) * tl.sigmoid(gate)
    tl.store(out_ptr + row * stride_out + cols, (silu * up.to(tl.float32)).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = gate.new_empty(gate.shape)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
