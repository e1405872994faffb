# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `natural_exp`, `tl.exp2(v * LN_2)`: exp(v) is 2 to the power v * log2(e), so the factor must be 1.4426950408889634 and not ln 2 = 0.693. Shows in all cases (least where the gate is huge).
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

LN_2 = tl.constexpr(0.6931471805599453)

# Tiles of 8 to 16 numbers for each thread; the narrow one is for short rows.
CONFIGS = [
    triton.Config({"TILE_R": 16, "TILE_C": 64}, num_warps=4),
    triton.Config({"TILE_R": 4, "TILE_C": 512}, num_warps=4),
    triton.Config({"TILE_R": 2, "TILE_C": 1024}, num_warps=8),
    triton.Config({"TILE_R": 1, "TILE_C": 2048}, num_warps=4),
    triton.Config({"TILE_R": 1, "TILE_C": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["TILE_C"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def natural_exp(v):
    """e to the power of each element; the hardware has an instruction for powers of two."""
    return tl.exp2(v * LN_2)


@triton.jit
def load_tile(ptr, rows, cols, stride, inside):
    """A tile of a matrix in fp32."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # like gate
    out_ptr,  # like gate
    n_rows,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    TILE_R: tl.constexpr,
    TILE_C: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns TILE_R rows by TILE_C columns."""
    tile = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, TILE_C)
    rows = (tile // across * TILE_R + tl.arange(0, TILE_R)).to(tl.int64)[:, None]
    cols = (tile % across * TILE_C + tl.arange(0, TILE_C))[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    gate = load_tile(gate_ptr, rows, cols, stride_gate, inside)
    up = load_tile(up_ptr, rows, cols, stride_up, inside)
    y = gate / (1.0 + natural_exp(-gate)) * up
    tl.store(out_ptr + rows * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    out = gate.new_empty((n_rows, n_cols)) if out is None else out

    def grid(meta):
        return (triton.cdiv(n_rows, meta["TILE_R"]) * triton.cdiv(n_cols, meta["TILE_C"]),)

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
