# gpu-programming/triton-kernels/swiglu.py | corner | In the host function `swiglu`, `if gate.is_contiguous() and up.is_contiguous():` takes the whole matrix for one row of numel columns without a look at the result; it should also ask `and out.is_contiguous()`. Wrong only where gate and up are contiguous but the given `out` has gaps between its rows (more than one row): it is written as if it were packed, so the gaps are written and later rows are not.
"""SwiGLU, silu(gate) * up; matrices without gaps are taken as one long row."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)

# 8 to 32 numbers for each thread
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x * sigmoid(x) in fp32; of a large negative x the power of two is inf, and the quotient 0."""
    return x / (1.0 + tl.exp2(-x * LOG2_E))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK columns of one row; the blocks of a row are neighbours."""
    pid = tl.program_id(axis=0)
    # Rounded up, and without a sum that could pass the end of int32.
    blocks = (n_cols - 1) // BLOCK + 1
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    if gate.numel() == 0:
        return out
    if gate.is_contiguous() and up.is_contiguous():
        # No gaps: the end of a row and the start of the next one share a block.
        n_rows, n_cols = 1, gate.numel()
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
