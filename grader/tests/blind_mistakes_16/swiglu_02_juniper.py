# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU on tiles of several rows."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": 4, "COLS": 256}, num_warps=4),
    triton.Config({"ROWS": 2, "COLS": 1024}, num_warps=4),
    triton.Config({"ROWS": 1, "COLS": 2048}, num_warps=4),
    triton.Config({"ROWS": 1, "COLS": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are not wider than a row; the narrowest one if there is none."""
    good = [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]]
    return good if len(good) > 0 else configs[:1]


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
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up for one tile; tiles are numbered row by row."""
    tile = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    rows = (tile // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = (tile % across) * COLS + tl.arange(0, COLS)[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    activated = gate / (1.0 + tl.exp(-gate))
    values = (activated * up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows * stride_out + cols, values, mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous."""
    if out is None:
        out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    n_rows, n_cols = gate.shape
    tiles = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)
    swiglu_kernel[tiles](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
