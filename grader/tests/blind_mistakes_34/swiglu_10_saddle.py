# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU on rectangles: short rows share a program, long ones are cut into columns."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((64, 16, 4), (8, 128, 4), (2, 512, 4), (1, 1024, 4), (1, 2048, 4), (1, 4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The three widest rectangles that are no wider than a row."""
    narrow = [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]]
    return narrow[-3:] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), by the one of exp(x) and exp(-x) that is at most 1."""
    z = tl.exp2(-1.4426950408889634 * tl.abs(x))
    return tl.where(x >= 0.0, 1.0, z) / (1.0 + z)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A program owns a rectangle of ROWS x COLS elements; those in one band of rows are neighbours."""
    across = tl.cdiv(n_cols, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = pid % across * COLS + tl.arange(0, COLS)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]

    gate = tl.load(gate_ptr + rows[:, None] * stride_gate + cols[None, :], mask=inside, other=0.0)
    up = tl.load(up_ptr + rows[:, None] * stride_up + cols[None, :], mask=inside, other=0.0)
    x = gate.to(tl.float32)
    result = x * sigmoid(x) * up.to(tl.float32)
    tl.store(out_ptr + rows[:, None] * stride_out + cols[None, :], result.to(gate.dtype), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; the result goes to `out` where one is given."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
