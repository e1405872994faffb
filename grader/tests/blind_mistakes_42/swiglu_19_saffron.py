# gpu-programming/triton-kernels/swiglu.py | right | A bounded grid: each program walks down a strip of columns, every n-th row, by moving its pointers (`gate_row += apart * stride_gate`); the sigmoid is taken from exp2(-|x|) with a tl.where; EVEN by heuristics drops the masks.
"""SwiGLU on a fixed number of programs: each takes every n-th row of a strip, and moves its pointers along."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
PROGRAMS = 4096  # about as many as a GPU holds at a time, a few times over

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def swish(x):
    """x / (1 + exp(-x)), by exp(-|x|) alone, which lies between 0 and 1."""
    small = tl.exp2(-tl.abs(x) * LOG2_E)
    return x * tl.where(x < 0.0, small, 1.0) / (1.0 + small)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """out = swish(gate) * up; program (i, k) has columns k * BLOCK and on of the rows i, i + I, i + 2 I, ...

    EVEN: the blocks of a row are whole, so no lane is masked.
    """
    first = tl.program_id(axis=0)
    step = tl.num_programs(axis=0)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    here, apart = first.to(tl.int64), step.to(tl.int64)
    gate_row = gate_ptr + here * stride_gate
    up_row = up_ptr + here * stride_up
    out_row = out_ptr + here * stride_out
    for row in range(first, n_rows, step):
        if EVEN:
            gate = tl.load(gate_row + cols, eviction_policy="evict_first")
            up = tl.load(up_row + cols, eviction_policy="evict_first")
        else:
            gate = tl.load(gate_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
            up = tl.load(up_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        result = (swish(gate.to(tl.float32)) * up.to(tl.float32)).to(gate.dtype)
        if EVEN:
            tl.store(out_row + cols, result)
        else:
            tl.store(out_row + cols, result, mask=cols < n_cols)
        gate_row += apart * stride_gate
        up_row += apart * stride_up
        out_row += apart * stride_out


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)

    # Fewer rows at a time where a row has many blocks.
    grid = lambda meta: (  # noqa: E731
        min(n_rows, max(1, PROGRAMS // triton.cdiv(n_cols, meta["BLOCK"]))),
        triton.cdiv(n_cols, meta["BLOCK"]),
    )
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
