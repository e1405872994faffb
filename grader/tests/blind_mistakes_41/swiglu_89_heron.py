# gpu-programming/triton-kernels/swiglu.py | error | In `swiglu_kernel`, `tl.sigmoid(gate).to(tl.float32)` takes the sigmoid of the loaded 16-bit block; `tl.sigmoid` (its exp) accepts only fp32 and fp64, so it should be `tl.sigmoid(gate.to(tl.float32))`. Compile error ("Expected dtype ['fp32', 'fp64'] but got ...") for fp16 and bf16; fp32 is right.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

# BLOCK columns at a time, CHUNKS times in one program, unrolled: all loads of a program are in flight at once.
CONFIGS = [
    triton.Config({"BLOCK": block, "CHUNKS": chunks}, num_warps=block // 256)
    for block, chunks in ((1024, 1), (1024, 2), (1024, 4), (2048, 1), (2048, 2))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: programs that own no more than a row, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["CHUNKS"] <= n_cols] or configs[:1]


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
    CHUNKS: tl.constexpr,
):
    """out = gate * sigmoid(gate) * up; a program owns BLOCK * CHUNKS columns of one row."""
    per_row = tl.cdiv(n_cols, BLOCK * CHUNKS)
    row = (tl.program_id(axis=0) // per_row).to(tl.int64)
    first = (tl.program_id(axis=0) % per_row) * (BLOCK * CHUNKS)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out

    for chunk in tl.static_range(CHUNKS):
        cols = first + chunk * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_row + cols, mask=inside, other=0.0)
        up = tl.load(up_row + cols, mask=inside, other=0.0)
        silu = gate.to(tl.float32) * tl.sigmoid(gate).to(tl.float32)
        tl.store(out_row + cols, (silu * up.to(tl.float32)).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))
    swiglu_kernel[lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["CHUNKS"]),)](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
