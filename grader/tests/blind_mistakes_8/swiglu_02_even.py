# gpu-programming/triton-kernels/swiglu.py | corner | EVEN tests whether n_rows * n_cols is a multiple of BLOCK; it must test n_cols. Where the product is a multiple and n_cols is not (8 rows of 520 with BLOCK 64, say), loads and stores run unmasked past the end of each row: into the space between padded rows, and past the end of the tensors.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((2048, 8), (1024, 4), (512, 2), (64, 1))]


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.heuristics({"EVEN": lambda args: args["n_rows"] * args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Axis 0 of the grid has the rows, axis 1 their blocks; no masks where each block is complete (EVEN)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gates = gate_ptr + row * stride_gate + cols
    ups = up_ptr + row * stride_up + cols
    outs = out_ptr + row * stride_out + cols
    if EVEN:
        gate = tl.load(gates).to(tl.float32)
        up = tl.load(ups).to(tl.float32)
    else:
        gate = tl.load(gates, mask=cols < n_cols, other=0.0).to(tl.float32)
        up = tl.load(ups, mask=cols < n_cols, other=0.0).to(tl.float32)
    value = (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty)
    if EVEN:
        tl.store(outs, value)
    else:
        tl.store(outs, value, mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for (n_rows, n_cols) matrices of one dtype, columns contiguous, rows any distance apart."""
    if out is None:
        out = torch.empty(gate.size(), dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.size()
    grid = lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
