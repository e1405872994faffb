# gpu-programming/triton-kernels/swiglu.py | honest | No mistake. A 2-D grid of rows and strips; a strip is PARTS blocks, one after the other, in an unrolled loop; the sigmoid is tl.sigmoid in fp32.
"""SwiGLU on a grid of rows and strips; each strip is a few blocks, one after the other."""

import torch
import triton
import triton.language as tl


def strips():
    """Numbers of a block, blocks of a strip, warps: 8 numbers for each thread and block, one load of 16 bytes."""
    shapes = [(1024, 1, 4), (1024, 2, 4), (2048, 1, 8), (2048, 2, 8), (4096, 1, 8)]
    return [triton.Config({"BLOCK": block, "PARTS": parts}, num_warps=warps) for block, parts, warps in shapes]


def fitting(configs, named_args, **kwargs):
    kept = [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["PARTS"] <= named_args["n_cols"]]
    return kept or configs[:1]


@triton.jit
def read(row_ptr, cols, n_cols):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=strips(), key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    begin = tl.program_id(axis=1) * (BLOCK * PARTS)
    for part in tl.static_range(PARTS):
        cols = begin + part * BLOCK + tl.arange(0, BLOCK)
        gate = read(gate_ptr, cols, n_cols)
        gated = gate * tl.sigmoid(gate) * read(up_ptr, cols, n_cols)
        tl.store(out_ptr + cols, gated.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = gate.shape
    result = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device) if out is None else out

    def grid(meta):
        return (n_rows, triton.cdiv(n_cols, meta["BLOCK"] * meta["PARTS"]))

    swiglu_kernel[grid](gate, up, result, n_cols, gate.stride(0), up.stride(0), result.stride(0))
    return result
