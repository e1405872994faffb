# gpu-programming/triton-kernels/swiglu.py | corner | where gate is contiguous, the three matrices are treated as one row (`if gate.is_contiguous()`), without a look at up and out; must ask all three. Shows for a contiguous gate with a padded up or out and more than one row: rows after the first are read from, or written to, the wrong places and the space between rows.
"""SwiGLU; a matrix without gaps is one long row, so that short rows do not waste lanes."""

import torch
import triton
import triton.language as tl


def _configs():
    return [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((1024, 4), (2048, 4), (4096, 8))]


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.autotune(configs=_configs(), key=["n_cols"])
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    """A program owns BLOCK columns of one row."""
    pid = tl.program_id(0).to(tl.int64)
    per_row = tl.cdiv(n_cols, BLOCK)
    row = pid // per_row
    cols = (pid % per_row) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    g = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * stride_out + cols, (silu(g) * u).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, in `out` where it is given."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    strides = (gate.stride(0), up.stride(0), out.stride(0))
    if gate.is_contiguous():
        # no gaps between rows: one row of all elements
        n_rows, n_cols = 1, gate.numel()
        strides = (n_cols, n_cols, n_cols)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, *strides)
    return out
