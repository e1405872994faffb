# gpu-programming/triton-kernels/swiglu.py | two mistakes | (1) The sigmoid is exp(gate) / (1 + exp(gate)): inf / inf is NaN for gate above 88. (2) The store uses `stride_up` for the rows of out; it must be `stride_out`.
"""SwiGLU; a program owns a tile of several rows."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": 4, "BLOCK": 256}, num_warps=4),
    triton.Config({"ROWS": 2, "BLOCK": 1024}, num_warps=4),
    triton.Config({"ROWS": 1, "BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """A tile of ROWS x BLOCK numbers."""
    blocks = tl.cdiv(n_cols, BLOCK)
    rows = ((tl.program_id(0) // blocks) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    e = tl.exp(gate)
    sigmoid = e / (1.0 + e)
    result = gate * sigmoid * up
    tl.store(out_ptr + rows * stride_up + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype."""
    n_rows, n_cols = gate.shape
    out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device) if out is None else out
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
