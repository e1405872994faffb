# gpu-programming/triton-kernels/swiglu.py | error | in `swiglu`, the grid function `lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]))` lacks the comma of a tuple of one and returns an int, of which Triton takes len(): every launch stops with a TypeError (object of type 'int' has no len()); it should be `(n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)`
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(z):
    """z * sigmoid(z) of an fp32 block; exp(-z) may be inf, and then the quotient is 0."""
    return z / (1.0 + tl.exp(-z))


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
    number = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (number // blocks).to(tl.int64)
    cols = (number % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols

    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = gate.shape
    programs = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]))  # noqa: E731
    swiglu_kernel[programs](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
