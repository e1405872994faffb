# gpu-programming/triton-kernels/swiglu.py | right | Nothing is wrong. Unusual: matrices whose rows lie back to back in all three tensors are taken as one row of n_rows * n_cols (up to 2^30) elements, persistent programs take every n-th block, a heuristic drops the masks of whole blocks, and the sigmoid is `tl.fdiv` with `exp2`.
"""SwiGLU by persistent programs; matrices whose rows lie back to back are taken as one long row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132 * 8  # 8 for each of the 132 multiprocessors of an H100 or H200
LONGEST = 2**30  # columns of a row that is put together, far from where 32 bits end
MINUS_LOG2E = tl.constexpr(-1.4426950408889634)

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def gated(gate, up):
    """silu(gate) * up in fp32. Of a gate below -88 exp2 is inf, and the quotient the 0 that it should be."""
    gate = gate.to(tl.float32)
    return tl.fdiv(gate, 1.0 + tl.exp2(gate * MINUS_LOG2E)) * up.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Blocks of BLOCK columns are counted row by row; a program takes every num_programs-th of them."""
    across = tl.cdiv(n_cols, BLOCK)
    lanes = tl.arange(0, BLOCK)
    for block in range(tl.program_id(axis=0), n_rows * across, tl.num_programs(axis=0)):
        row = tl.cast(block // across, tl.int64)
        cols = (block % across) * BLOCK + lanes
        gate_at = gate_ptr + row * stride_gate + cols
        up_at = up_ptr + row * stride_up + cols
        out_at = out_ptr + row * stride_out + cols
        if EVEN:
            result = gated(tl.load(gate_at), tl.load(up_at))
            tl.store(out_at, result.to(out_ptr.dtype.element_ty))
        else:
            inside = cols < n_cols
            gate = tl.load(gate_at, mask=inside, other=0.0)
            up = tl.load(up_at, mask=inside, other=0.0)
            tl.store(out_at, gated(gate, up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    together = gate.stride(0) == up.stride(0) == out.stride(0) == n_cols
    if together and n_rows * n_cols <= LONGEST:
        n_rows, n_cols = 1, n_rows * n_cols
    grid = lambda meta: (min(PROGRAMS, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
