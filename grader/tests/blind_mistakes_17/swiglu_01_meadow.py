# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU, silu(gate) * up, in tiles of a few rows."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps)
    for rows, block, warps in ((4, 256, 4), (2, 512, 4), (1, 1024, 4), (2, 1024, 4), (1, 2048, 8), (1, 4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def addresses(base, rows, cols, stride):
    """Pointers to a tile; rows is int64."""
    return base + rows[:, None] * stride + cols[None, :]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = gate / (1 + exp(-gate)) * up; a program owns a tile of ROWS rows and BLOCK columns."""
    pid = tl.program_id(axis=0)
    across = (n_cols + BLOCK - 1) // BLOCK
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]

    g = tl.load(addresses(gate_ptr, rows, cols, stride_gate), mask=mask, other=0.0).to(tl.float32)
    u = tl.load(addresses(up_ptr, rows, cols, stride_up), mask=mask, other=0.0).to(tl.float32)
    y = g / (1.0 + tl.exp(-g)) * u
    tl.store(addresses(out_ptr, rows, cols, stride_out), y.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
