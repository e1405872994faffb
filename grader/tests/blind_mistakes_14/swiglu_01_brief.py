# gpu-programming/triton-kernels/swiglu.py | error | `g = tl.load(...)` and `u = tl.load(...)` are not converted with `.to(tl.float32)`, and tl.exp takes fp32 or fp64 only, so the kernel does not compile in fp16 and bf16; both loads should be converted to fp32 first.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

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
    pid = tl.program_id(0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    m = cols < n_cols

    g = tl.load(gate_ptr + row * stride_gate + cols, mask=m, other=0.0)
    u = tl.load(up_ptr + row * stride_up + cols, mask=m, other=0.0)
    y = g / (1.0 + tl.exp(-g)) * u
    tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=m)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
