# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `swiglu_kernel`, `result = tl.interleave(low, high)...` mixes the two halves element by element (low0, high0, low1, ...), but the store goes to `cols = first + tl.arange(0, BLOCK)`, where all of `low` comes before all of `high`. It should be two stores (low at `first + lanes`, high at `first + HALF + lanes`), or `tl.join(low, high)` permuted to (2, HALF) and reshaped. Shows for every matrix of more than one column.
"""SwiGLU: silu(gate) * up for two matrices; a block of a row is computed as two halves and stored at once."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)

# Each half of a block has 8 or 16 numbers for each thread: loads of 16 bytes in 16 bits.
CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=2),
    triton.Config({"BLOCK": 2048}, num_warps=2),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x * sigmoid(x); of a large negative x the exponential is inf, and the quotient 0."""
    return x / (1.0 + tl.exp2(-LOG2_E * x))


@triton.jit
def gated(gate_row, up_row, cols, n_cols):
    """silu(gate) * up for these columns of a row, in fp32."""
    inside = cols < n_cols
    gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)
    return silu(gate) * up


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
    """A program owns BLOCK columns of one row. The loads of both halves are in flight together."""
    HALF: tl.constexpr = BLOCK // 2
    blocks = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // blocks).to(tl.int64)
    first = (pid % blocks) * BLOCK
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out

    lanes = tl.arange(0, HALF)
    low = gated(gate_row, up_row, first + lanes, n_cols)
    high = gated(gate_row, up_row, first + HALF + lanes, n_cols)

    cols = first + tl.arange(0, BLOCK)
    result = tl.interleave(low, high).to(out_ptr.dtype.element_ty)
    tl.store(out_row + cols, result, mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
