# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | `silu(u) * g` applies the activation to up and not to gate; must be silu(g) * u.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"HIGH": 1, "WIDE": 2048}, num_warps=4),
    triton.Config({"HIGH": 4, "WIDE": 512}, num_warps=4),
    triton.Config({"HIGH": 8, "WIDE": 128}, num_warps=4),
]


@triton.jit
def silu(x):
    """x times its sigmoid, by a power of two."""
    return x / (1.0 + tl.exp2(x * -1.4426950408889634))


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"])
@triton.jit
def swiglu_kernel(g_ptr, u_ptr, o_ptr, n_rows, n_cols, stride_g, stride_u, stride_o, HIGH: tl.constexpr, WIDE: tl.constexpr):
    """A tile of HIGH rows and WIDE columns."""
    across = tl.cdiv(n_cols, WIDE)
    pid = tl.program_id(0)
    i = (pid // across * HIGH + tl.arange(0, HIGH)).to(tl.int64)[:, None]
    j = (pid % across * WIDE + tl.arange(0, WIDE))[None, :]
    there = (i < n_rows) & (j < n_cols)
    g = tl.load(g_ptr + i * stride_g + j, mask=there, other=0.0).to(tl.float32)
    u = tl.load(u_ptr + i * stride_u + j, mask=there, other=0.0).to(tl.float32)
    tl.store(o_ptr + i * stride_o + j, (silu(u) * g).to(o_ptr.dtype.element_ty), mask=there)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices whose columns are contiguous; rows may be any number of elements apart."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))

    def grid(meta):
        return (triton.cdiv(n_rows, meta["HIGH"]) * triton.cdiv(n_cols, meta["WIDE"]),)

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
