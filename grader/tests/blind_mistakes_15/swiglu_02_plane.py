# gpu-programming/triton-kernels/swiglu.py | right | right
"""silu(gate) * up on tiles of several rows and many columns, with a grid of two axes."""

import torch
import triton
import triton.language as tl

SHAPES = ((1, 1024, 4), (2, 1024, 4), (1, 2048, 4), (4, 1024, 8))  # rows, columns, warps
CONFIGS = [triton.Config({"TALL": tall, "WIDE": wide}, num_warps=warps) for tall, wide, warps in SHAPES]


def no_wider_than_a_row(configs, named_args, **kwargs):
    """Tiles whose columns a row can fill; for short rows the smallest one."""
    n_cols = named_args["n_cols"]
    chosen = [config for config in configs if config.kwargs["WIDE"] <= n_cols]
    return chosen if chosen else configs[:1]


@triton.jit
def tile_of(base, rows, cols, stride):
    return base + rows[:, None] * stride + cols[None, :]


@triton.autotune(
    configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": no_wider_than_a_row}
)
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # axis 0 goes down the rows, because it may have more programs than axis 1
    rows = tl.program_id(0).to(tl.int64) * TALL + tl.arange(0, TALL)
    cols = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    g = tl.load(tile_of(gate_ptr, rows, cols, stride_gate), mask=inside, other=0.0).to(tl.float32)
    u = tl.load(tile_of(up_ptr, rows, cols, stride_up), mask=inside, other=0.0).to(tl.float32)
    product = g / (1.0 + tl.exp(-g)) * u
    tl.store(tile_of(out_ptr, rows, cols, stride_out), product.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; a row stride for each of the three; a new contiguous matrix where `out` is not given."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return triton.cdiv(n_rows, meta["TALL"]), triton.cdiv(n_cols, meta["WIDE"])

    strides = (gate.stride(0), up.stride(0), out.stride(0))
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, *strides)
    return out
