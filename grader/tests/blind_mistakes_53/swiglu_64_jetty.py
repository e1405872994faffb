# gpu-programming/triton-kernels/swiglu.py | contract | In `CONFIGS` the condition `8 * 32 * warps <= block * chunks` counts the numbers of all chunks together, while each load has BLOCK columns; it should be `8 * 32 * warps <= block`. So (BLOCK 1024, CHUNKS 2, 8 warps) is a config with 4 numbers for each thread and load: loads of 8 bytes in 16 bits, where the README asks for loads of 16 bytes in every config. All numbers are right.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import itertools

import torch
import triton
import triton.language as tl

# A program owns CHUNKS chunks of BLOCK columns: 8 to 32 numbers for each thread of its warps.
CONFIGS = [
    triton.Config({"BLOCK": block, "CHUNKS": chunks}, num_warps=warps)
    for block, chunks, warps in itertools.product((1024, 2048, 4096), (1, 2), (4, 8))
    if 8 * 32 * warps <= block * chunks <= 32 * 32 * warps
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: spans no longer than the row, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["CHUNKS"] <= n_cols] or configs[:1]


@triton.jit
def gated(gate, up):
    """silu(gate) * up in fp32. The exponent is never positive, so that nothing overflows."""
    gate = gate.to(tl.float32)
    small = tl.exp2(tl.abs(gate) * -1.4426950408889634)
    numerator = tl.where(gate < 0.0, small, 1.0)
    return gate * (numerator / (1.0 + small)) * up.to(tl.float32)


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
    CHUNKS: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns CHUNKS * BLOCK columns of one row."""
    spans = tl.cdiv(n_cols, BLOCK * CHUNKS)
    pid = tl.program_id(axis=0)
    row = (pid // spans).to(tl.int64)
    first = (pid % spans) * (BLOCK * CHUNKS)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    for chunk in tl.static_range(CHUNKS):
        cols = first + chunk * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_row + cols, mask=inside, other=0.0)
        up = tl.load(up_row + cols, mask=inside, other=0.0)
        tl.store(out_row + cols, gated(gate, up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    if n_rows > 0:
        swiglu_kernel[lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["CHUNKS"]),)](
            gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
        )
    return out
