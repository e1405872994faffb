# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU with the exponential of -|gate| only, so that nothing overflows; a program has a few rows of a strip of columns."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024, "ROWS": 1}, num_warps=4),
    triton.Config({"BLOCK": 1024, "ROWS": 4}, num_warps=4),
    triton.Config({"BLOCK": 2048, "ROWS": 2}, num_warps=8),
    triton.Config({"BLOCK": 4096, "ROWS": 1}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Strips no wider than the row, or the narrow ones for a short row."""
    widest = max(named_args["n_cols"], 1024)
    return [config for config in configs if config.kwargs["BLOCK"] <= widest]


@triton.jit
def sigmoid(v):
    """1 / (1 + exp(-v)), and for negative v the same fraction times exp(v) above and below."""
    small = tl.exp(-tl.abs(v))
    return tl.where(v < 0, small, 1.0) / (1.0 + small)


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """out = gate * sigmoid(gate) * up; a program owns ROWS rows of BLOCK columns."""
    strips = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    cols = (pid % strips) * BLOCK + tl.arange(0, BLOCK)
    first = (pid // strips).to(tl.int64) * ROWS
    for i in tl.static_range(ROWS):
        row = first + i
        exists = (cols < n_cols) & (row < n_rows)
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=exists, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * stride_up + cols, mask=exists, other=0.0).to(tl.float32)
        product = gate * sigmoid(gate) * up
        tl.store(out_ptr + row * stride_out + cols, product.to(out_ptr.dtype.element_ty), mask=exists)


def programs(n_rows, n_cols, meta):
    """Return the number of programs of a config: groups of rows times strips of columns."""
    return triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"])


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype; the result goes to `out` if it is given."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    strides = (gate.stride(0), up.stride(0), out.stride(0))
    swiglu_kernel[lambda meta: (programs(n_rows, n_cols, meta),)](gate, up, out, n_rows, n_cols, *strides)
    return out
