# gpu-programming/triton-kernels/swiglu.py | right | Two-dimensional tiles ROWS x COLS of several rows each from one flat grid, rows and columns masked together, silu as a helper with exp2 and -log2(e).
"""SwiGLU, silu(gate) * up, by two-dimensional tiles of a few rows each, autotuned."""

import torch
import triton
import triton.language as tl

# ROWS x COLS numbers over 32 * warps threads: 8 to 32 for each, and always 8 or more beside each other.
CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in (
        (8, 128, 4),
        (8, 256, 4),
        (4, 512, 4),
        (2, 1024, 4),
        (1, 1024, 4),
        (1, 2048, 4),
        (1, 2048, 8),
        (1, 4096, 8),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the row, but the narrowest ones for a short row."""
    n_cols = named_args["n_cols"]
    return [config for config in configs if config.kwargs["COLS"] <= max(n_cols, 256)]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)), where exp(y) is the y * log2(e)-th power of 2; 0 where exp(-x) is inf."""
    return x / (1.0 + tl.exp2(x * -1.4426950408889634))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One program for each tile of ROWS x COLS, counted along the rows first."""
    across = tl.cdiv(n_cols, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = pid % across * COLS + tl.arange(0, COLS)[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0)
    result = silu(gate.to(tl.float32)) * up.to(tl.float32)
    tl.store(out_ptr + rows * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n_rows, n_cols = gate.shape
    tiles = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)  # noqa: E731
    swiglu_kernel[tiles](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
