# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU in tiles of rows and columns: TILE numbers each, of as many rows as a short row leaves room for."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8))
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the matrix can fill, and always the smallest."""
    numbers = named_args["n_rows"] * named_args["n_cols"]
    return [config for config in configs if config.kwargs["TILE"] <= max(numbers, 1024)]


def _columns(args):
    return min(triton.next_power_of_2(args["n_cols"]), args["TILE"])


def _rows(args):
    return max(args["TILE"] // triton.next_power_of_2(args["n_cols"]), 1)


@triton.autotune(
    configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting}
)
@triton.heuristics({"ROWS": _rows, "COLS": _columns})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    TILE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A program owns ROWS x COLS numbers, TILE of them, in a grid of tiles counted row by row."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    i = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = (pid % across) * COLS + tl.arange(0, COLS)[None, :]
    inside = (i < n_rows) & (j < n_cols)
    gate = tl.load(gate_ptr + i * stride_gate + j, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + i * stride_up + j, mask=inside, other=0.0).to(tl.float32)
    swish = gate / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + i * stride_out + j, (swish * up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, into `out` where one is given."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))
    tiles = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)  # noqa: E731
    swiglu_kernel[tiles](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
