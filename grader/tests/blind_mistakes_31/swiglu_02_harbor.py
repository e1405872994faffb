# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU in rectangles: a program owns ROWS x BLOCK elements, so that short rows fill a program, too."""

import torch
import triton
import triton.language as tl

# (ROWS, BLOCK, warps): each thread has 8 neighbouring numbers
SHAPES = ((8, 128, 4), (4, 512, 8), (2, 1024, 8), (1, 2048, 8))
CONFIGS = [triton.Config({"ROWS": high, "BLOCK": wide}, num_warps=warps) for high, wide, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = silu(gate) * up for one rectangle; rectangles are counted row by row."""
    across = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    i = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = (pid % across) * BLOCK + tl.arange(0, BLOCK)[None, :]
    exists = (i < n_rows) & (j < n_cols)
    gate = tl.load(gate_ptr + i * stride_gate + j, mask=exists, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + i * stride_up + j, mask=exists, other=0.0).to(tl.float32)
    product = silu(gate) * up
    tl.store(out_ptr + i * stride_out + j, product.to(out_ptr.dtype.element_ty), mask=exists)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, rows any number of elements apart."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
