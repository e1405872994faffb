# gpu-programming/triton-kernels/swiglu.py | corner | in swiglu, the condition of the flat path, `if gate.is_contiguous() and up.is_contiguous()`, does not look at out: when gate and up are contiguous and an out of two or more rows is given whose rows are padded (or far apart), the whole matrix is stored as one row, so the rows of out from the second on are at the wrong place and the space between rows is overwritten; all other layouts are right. It should also ask for out.is_contiguous()
"""SwiGLU: silu(gate) * up, where a dense matrix is treated as one long row."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((512, 4), (1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """Blocks that are not longer than a row, or the shortest block."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """A program owns BLOCK columns of one row; a row may be longer than 2^31, as it may be a whole matrix."""
    per_row = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // per_row).to(tl.int64)
    cols = (pid % per_row).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols

    g = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    y = g / (1.0 + tl.exp(-g)) * u
    tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    # Without gaps the rows follow each other: one long row has one tail instead of n_rows tails.
    if gate.is_contiguous() and up.is_contiguous():
        n_rows, n_cols = 1, n_rows * n_cols

    swiglu_kernel[lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
