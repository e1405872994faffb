# gpu-programming/triton-kernels/swiglu.py | corner | In swiglu `if gate.is_contiguous() and out.is_contiguous():` forgets up; it should also ask for `up.is_contiguous()`. The matrix is treated as one row although up has gaps: wrong (from the second row on) only where up alone is padded, gate and out are contiguous, and there is more than one row.
"""SwiGLU in one kernel for matrices and, where nothing lies between the rows, for one long row; autotuned."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


def blocks(*sizes):
    """Candidates with 8, 16 and 32 numbers for each thread."""
    return [
        triton.Config({"BLOCK": size}, num_warps=size // 32 // each)
        for size in sizes
        for each in (8, 16, 32)
        if 4 <= size // 32 // each <= 16
    ]


CONFIGS = blocks(1024, 2048, 4096)


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than the row, or the shortest."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


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
):
    """A program owns BLOCK columns of one row; a row may have more than 2^31 columns."""
    per_row = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0).to(tl.int64)
    row, block = pid // per_row, pid % per_row
    cols = block * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp2(gate * -LOG2_E)) * up
    tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows that follow each other without a gap are one row of n_rows * n_cols columns: then only the end of the
    whole matrix needs a mask.
    """
    if out is None:
        out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n_rows, n_cols = gate.shape
    if gate.is_contiguous() and out.is_contiguous():
        n_rows, n_cols = 1, n_rows * n_cols
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
