# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU in strips, autotuned: a program goes down a few rows with the same columns."""

import itertools

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 32 * warps * numbers, "ROWS": rows}, num_warps=warps)
    for warps, numbers, rows in itertools.product((4, 8), (8, 16), (1, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row and no more rows than there are."""

    def fits(config):
        block, rows = config.kwargs["BLOCK"], config.kwargs["ROWS"]
        return block <= named_args["n_cols"] and rows <= named_args["n_rows"]

    return [config for config in configs if fits(config)] or configs[:1]


@triton.jit
def silu(z):
    """z / (1 + exp(-z)); of a large negative z the exponential is inf, and the quotient 0."""
    LOG2E: tl.constexpr = 1.4426950408889634
    return z / (1.0 + tl.exp2(-LOG2E * z))


@triton.autotune(configs=CONFIGS, key=["n_cols", "n_rows"], prune_configs_by={"early_config_prune": fitting})
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
    ROWS: tl.constexpr,
):
    """out = silu(gate) * up; a program owns BLOCK columns of ROWS rows."""
    strips = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    cols = pid % strips * BLOCK + tl.arange(0, BLOCK)
    top = (pid // strips).to(tl.int64) * ROWS
    for step in tl.static_range(ROWS):
        row = top + step
        here = (cols < n_cols) & (row < n_rows)
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=here, other=0.0)
        up = tl.load(up_ptr + row * stride_up + cols, mask=here, other=0.0)
        result = silu(gate.to(tl.float32)) * up.to(tl.float32)
        tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=here)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))

    def grid(meta):
        strips = triton.cdiv(n_cols, meta["BLOCK"])
        return (strips * triton.cdiv(n_rows, meta["ROWS"]),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols,
        stride_gate=gate.stride(0), stride_up=up.stride(0), stride_out=out.stride(0),
    )  # fmt: skip
    return out
