# gpu-programming/triton-kernels/swiglu.py | error | In `swiglu_kernel`, `stride_gate.to(tl.int64)` (and likewise stride_up, stride_out) fails where a stride is 1, because Triton makes an integer argument of 1 a constant without `.to`; it should be `row.to(tl.int64) * stride_gate`. Shows only for contiguous matrices of one column (1 x 1): an error at compilation; all other cases are right.
"""SwiGLU: silu(gate) * up, a few blocks side by side for each program, autotuned."""

import torch
import triton
import triton.language as tl


def _config(block, unroll, num_warps):
    """One candidate: columns of a block, with 8 or 16 for each thread, and blocks of a program."""
    return triton.Config({"BLOCK": block, "UNROLL": unroll}, num_warps=num_warps)


CONFIGS = [
    _config(1024, 1, 4),
    _config(1024, 2, 4),
    _config(1024, 4, 4),
    _config(2048, 1, 4),
    _config(2048, 2, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: no more columns than the row has, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["UNROLL"] <= n_cols] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), without inf / inf at either end."""
    return 1.0 / (1.0 + tl.exp(-x))


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
    UNROLL: tl.constexpr,
):
    """A program owns UNROLL blocks of BLOCK columns, one after the other in one row."""
    pid = tl.program_id(axis=0)
    groups = tl.cdiv(n_cols, BLOCK * UNROLL)
    row = pid // groups
    start = (pid % groups) * (BLOCK * UNROLL)
    # Rows may begin beyond 2^31 elements.
    gate_row = gate_ptr + row * stride_gate.to(tl.int64)
    up_row = up_ptr + row * stride_up.to(tl.int64)
    out_row = out_ptr + row * stride_out.to(tl.int64)
    for block in tl.static_range(UNROLL):
        cols = start + block * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)
        result = gate * sigmoid(gate) * up
        tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def programs(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["UNROLL"]),)

    swiglu_kernel[programs](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
