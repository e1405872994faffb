# gpu-programming/triton-kernels/swiglu.py | contract | In `swiglu`, `out = gate.new_empty_strided((n_rows, n_cols), (pitch, 1))` returns rows that lie `pitch` apart; the README asks for a new contiguous tensor where no `out` is given (`torch.empty((n_rows, n_cols), ...)`). The numbers are right. Shows without `out` where n_cols is no multiple of 8 and there are two rows or more, e.g. (5, 127).
"""SwiGLU: silu(gate) * up, one program for each block of a row, without masks where rows are whole blocks."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

# 8 numbers of 16 bits are 16 bytes, the widest load of a thread: 8 to 32 of them for each thread here.
CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """out = gate / (1 + exp(-gate)) * up; WHOLE says that every block of a row is complete."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    gate_ptrs = gate_ptr + row * stride_gate + cols
    up_ptrs = up_ptr + row * stride_up + cols
    out_ptrs = out_ptr + row * stride_out + cols

    if WHOLE:
        gate = tl.load(gate_ptrs).to(tl.float32)
        up = tl.load(up_ptrs).to(tl.float32)
    else:
        gate = tl.load(gate_ptrs, mask=cols < n_cols, other=0.0).to(tl.float32)
        up = tl.load(up_ptrs, mask=cols < n_cols, other=0.0).to(tl.float32)
    result = (gate / (1.0 + tl.exp2(-LOG2E * gate)) * up).to(out_ptr.dtype.element_ty)
    if WHOLE:
        tl.store(out_ptrs, result)
    else:
        tl.store(out_ptrs, result, mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        # Every row begins at a multiple of 16 bytes, whatever n_cols is: no store straddles two sectors.
        pitch = triton.cdiv(n_cols, 8) * 8
        out = gate.new_empty_strided((n_rows, n_cols), (pitch, 1))
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
