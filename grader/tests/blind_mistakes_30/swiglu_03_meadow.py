# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU on two-dimensional tiles: a program owns a few rows and a block of their columns."""

import torch
import triton
import triton.language as tl

TILES = ((4, 256, 4), (2, 1024, 8), (4, 1024, 8), (2, 2048, 8))
CONFIGS = [
    triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps) for rows, block, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    fit = [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]]
    return fit if len(fit) > 0 else configs[:1]


@triton.jit
def logistic(x):
    # The exponent is never positive, so exp stays between 0 and 1 for either sign of x.
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


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
    across = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(0)
    i = (pid // across) * ROWS + tl.arange(0, ROWS)
    j = (pid % across) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < n_rows)[:, None] & (j < n_cols)[None, :]
    far = i.to(tl.int64)[:, None]
    near = j[None, :]

    gate = tl.load(gate_ptr + far * stride_gate + near, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + far * stride_up + near, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + far * stride_out + near, up * (gate * logistic(gate)), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; the rows of each of the three matrices may be any number of elements apart."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](
        gate,
        up,
        out,
        n_rows,
        n_cols,
        stride_gate=gate.stride(0),
        stride_up=up.stride(0),
        stride_out=out.stride(0),
    )
    return out
