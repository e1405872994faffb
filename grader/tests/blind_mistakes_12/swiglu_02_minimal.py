# gpu-programming/triton-kernels/swiglu.py | error | gate is not converted to fp32 before tl.sigmoid, whose exp takes fp32 and fp64 only: for fp16 and bf16 the kernel does not compile ("Expected dtype ['fp32', 'fp64'] but got fp16"); it must be tl.load(...).to(tl.float32); fp32 is right
"""SwiGLU, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=block // 256) for block in (1024, 2048, 4096)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """silu(gate) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    blocks = (n_cols + BLOCK - 1) // BLOCK
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    here = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=here)
    up = tl.load(up_ptr + row * stride_up + cols, mask=here)
    silu = gate * tl.sigmoid(gate)
    tl.store(out_ptr + row * stride_out + cols, silu * up, mask=here)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    swiglu_kernel[lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
