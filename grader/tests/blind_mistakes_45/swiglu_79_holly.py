# gpu-programming/triton-kernels/swiglu.py | error | `CONFIGS` has a block of 3072 (`(3072, 4)`), and `tl.arange(0, BLOCK)` in `swiglu_kernel` takes only powers of two: the compilation raises ValueError (arange's range must be a power of 2). `fitting` tries this config for rows of 3072 columns and more; shorter rows are right.
"""SwiGLU, a few rows for each program: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

ROWS = tl.constexpr(2)  # rows of a program, one after the other: their loads are in flight together

# 8 numbers of 16 bits are a load of 16 bytes; each thread has 8, 16 or 24 of a row.
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (3072, 4), (4096, 8))
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
    n_rows,
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of ROWS rows."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    first = (pid // blocks).to(tl.int64) * ROWS
    cols = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    for i in tl.static_range(ROWS):
        row = first + i
        inside = (cols < n_cols) & (row < n_rows)
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
        y = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (triton.cdiv(n_rows, 2) * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
