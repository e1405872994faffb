# gpu-programming/triton-kernels/swiglu.py | contract | `out = torch.empty_strided(gate.shape, gate.stride(), ...)` in `swiglu`: without `out` the README asks for a new contiguous tensor, and this one has the strides of gate; it should be `torch.empty(gate.shape, ...)`. All numbers are right; shows if `out` is not given and the rows of gate are padded.
"""SwiGLU, several neighbouring blocks of a row for each program, their loads in flight together."""

import torch
import triton
import triton.language as tl


def _config(block, unroll, num_warps):
    """One candidate: columns of a block, blocks of a program, warps."""
    return triton.Config({"BLOCK": block, "UNROLL": unroll}, num_warps=num_warps)


CONFIGS = [
    _config(1024, 1, 4),
    _config(1024, 2, 4),
    _config(2048, 1, 8),
    _config(2048, 2, 8),
    _config(4096, 1, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs whose programs have work in all their blocks, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [one for one in configs if one.kwargs["BLOCK"] * one.kwargs["UNROLL"] <= n_cols] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Axis 0 counts rows, axis 1 pieces of UNROLL blocks."""
    row = tl.program_id(axis=0).to(tl.int64)
    begin = tl.program_id(axis=1) * (BLOCK * UNROLL)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    for block in tl.static_range(UNROLL):
        cols = begin + block * BLOCK + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(gate_row + cols, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=mask, other=0.0).to(tl.float32)
        result = gate * tl.sigmoid(gate) * up
        tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_strided(gate.shape, gate.stride(), dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return n_rows, triton.cdiv(n_cols, meta["BLOCK"] * meta["UNROLL"])

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
