# gpu-programming/triton-kernels/swiglu.py | error | swiglu_kernel: the parameter ROWS is not annotated with tl.constexpr, so it is a runtime number and tl.arange(0, ROWS) does not compile; it must be ROWS: tl.constexpr
"""SwiGLU in tiles of ROWS x COLS: also short rows fill a program."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": 16, "COLS": 128}, num_warps=4),
    triton.Config({"ROWS": 4, "COLS": 512}, num_warps=4),
    triton.Config({"ROWS": 2, "COLS": 1024}, num_warps=4),
    triton.Config({"ROWS": 2, "COLS": 2048}, num_warps=8),
]


def narrow_enough(configs, named_args, **kwargs):
    kept = [c for c in configs if c.kwargs["COLS"] <= named_args["n_cols"]]
    return kept[-2:] if kept else configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": narrow_enough})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    ROWS, COLS: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(n_cols, COLS)
    tile = tl.program_id(axis=0)
    r = (tile // tiles_n).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = (tile % tiles_n) * COLS + tl.arange(0, COLS)[None, :]
    inside = (r < n_rows) & (c < n_cols)
    g = tl.load(gate_ptr + r * stride_gate + c, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + r * stride_up + c, mask=inside, other=0.0).to(tl.float32)
    silu = g * tl.sigmoid(g)
    tl.store(out_ptr + r * stride_out + c, (silu * u).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    rows, cols = gate.shape
    if out is None:
        out = torch.empty((rows, cols), device=gate.device, dtype=gate.dtype)

    def grid(meta):
        return (triton.cdiv(rows, meta["ROWS"]) * triton.cdiv(cols, meta["COLS"]),)

    swiglu_kernel[grid](gate, up, out, rows, cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
