# gpu-programming/triton-kernels/swiglu.py | error | in swiglu the grid function returns a plain number, `(n_rows * triton.cdiv(...))` without a comma, where a launch needs a tuple: the launch fails in every case, as an int has no length; should be (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import itertools

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in itertools.product((1024, 2048, 4096), (4, 8))
    if block // (32 * warps) >= 8
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of BLOCK columns of one row for each program, rows one after the other."""
    per_row = tl.cdiv(n_cols, BLOCK)
    row = tl.program_id(axis=0) // per_row
    block = tl.program_id(axis=0) - row * per_row
    cols = block * BLOCK + tl.arange(0, BLOCK)
    tail = cols < n_cols

    row = row.to(tl.int64)
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=tail, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=tail, other=0.0).to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * stride_out + cols, gate * sigmoid * up, mask=tail)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]))
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
