# gpu-programming/triton-kernels/swiglu.py | corner | In `swiglu`, `if gate.is_contiguous() and up.is_contiguous():` takes the matrices as one long row without asking whether `out` has gaps between its rows; it should also ask `out.is_contiguous()`. Shows only where gate and up are contiguous, there is more than one row, and the given `out` has another row stride: the results are written into the gaps, and rows 1 and up are left unwritten or wrong.
"""SwiGLU, silu(gate) * up, autotuned: matrices without gaps are walked as one long row."""

import torch
import triton
import triton.language as tl

# 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row.

    A row may have more than 2^31 columns where it stands for a whole matrix: columns are int64, too.
    """
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    if gate.is_contiguous() and up.is_contiguous():
        # No block is cut off at the end of a row, but for the last one.
        n_rows, n_cols = 1, n_rows * n_cols
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
