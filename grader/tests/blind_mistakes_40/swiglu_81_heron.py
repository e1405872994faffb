# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `swiglu_kernel`, `result = tl.interleave(silu_times(gate_low, up_low), silu_times(gate_high, up_high))` alternates the elements of both halves, but the span is stored as first half, then second half. It should put one half behind the other, e.g. `tl.reshape(tl.trans(tl.join(low, high)), (2 * HALF,))`, or two stores. Wrong in every row of two or more columns; right with n_cols = 1 only.
"""SwiGLU, silu(gate) * up: a program owns a span of one row and works on its two halves side by side."""

import torch
import triton
import triton.language as tl

# 8 to 16 numbers of each half for a thread: loads of 16 bytes in 16 bits, four of them in flight at once.
CONFIGS = [
    triton.Config({"HALF": half}, num_warps=warps)
    for half, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: spans no longer than the row, the first one for a short row."""
    return [config for config in configs if 2 * config.kwargs["HALF"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu_times(gate, up):
    """gate / (1 + exp(-gate)) * up in fp32; for a large negative gate it is gate / inf, which is 0."""
    gate = gate.to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    HALF: tl.constexpr,
):  # fmt: skip
    """Program i owns 2 * HALF columns of a row: its spans are counted row by row."""
    spans = tl.cdiv(n_cols, 2 * HALF)
    pid = tl.program_id(axis=0)
    row = (pid // spans).to(tl.int64)
    first = (pid % spans) * (2 * HALF)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out

    low = first + tl.arange(0, HALF)
    high = low + HALF
    # All four loads first, so that none of them waits for an exp.
    gate_low = tl.load(gate_row + low, mask=low < n_cols, other=0.0)
    gate_high = tl.load(gate_row + high, mask=high < n_cols, other=0.0)
    up_low = tl.load(up_row + low, mask=low < n_cols, other=0.0)
    up_high = tl.load(up_row + high, mask=high < n_cols, other=0.0)

    # One store for the whole span.
    result = tl.interleave(silu_times(gate_low, up_low), silu_times(gate_high, up_high))
    cols = first + tl.arange(0, 2 * HALF)
    tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, 2 * meta["HALF"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
