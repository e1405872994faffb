# gpu-programming/triton-kernels/swiglu.py | two mistakes | `silu = up / (1 + tl.exp(-up))` applies silu to up and multiplies it by gate; it should be silu of gate, times up. `out_row = out_ptr + row * stride_gate` uses the row stride of gate for out; it should be `row * stride_out`.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

# (columns of a block, warps): 8 or 16 numbers for each thread
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in [(1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16)]
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
    program = tl.program_id(axis=0)
    blocks_per_row = tl.cdiv(n_cols, BLOCK)
    row = (program // blocks_per_row).to(tl.int64)
    block = program % blocks_per_row

    # where this row begins in each of the three matrices
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_gate

    cols = block * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)

    silu = up / (1 + tl.exp(-up))
    result = silu * gate
    tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
