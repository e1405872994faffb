# gpu-programming/triton-kernels/swiglu.py | right | Persistent programs walk over (row, block) tiles with a grid stride, silu as gate / (1 + exp2(-gate * log2(e))) in a helper; the number of programs comes from the multiprocessors. Nothing is wrong.
"""SwiGLU, silu(gate) * up, by a fixed number of programs that walk over the tiles of the matrix, autotuned."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)

# 8 or more neighbouring numbers for each thread: one load of 16 bytes in 16 bits.
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
]


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than the row, the first config for a short row."""
    kept = [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]]
    return kept or configs[:1]


@triton.jit
def silu(g):
    """g * sigmoid(g) in fp32: of a large negative g the power is inf, and g / inf is 0."""
    return g / (1.0 + tl.exp2(-g * LOG2_E))


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_gate,  # elements from one row to the next, of each tensor
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """Program p takes the tiles p, p + programs, p + 2 * programs, ...; a tile is BLOCK columns of one row."""
    per_row = tl.cdiv(n_cols, BLOCK)
    tiles = n_rows * per_row
    lanes = tl.arange(0, BLOCK)
    for tile in tl.range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        row = tl.cast(tile // per_row, tl.int64)
        cols = (tile % per_row) * BLOCK + lanes
        inside = cols < n_cols
        g = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
        y = silu(g) * u
        tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def programs_of(x):
    """As many programs as a device holds at a time, and a few where there is none."""
    if not x.is_cuda:
        return 24
    return 8 * torch.cuda.get_device_properties(x.device).multi_processor_count


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous, any row stride."""
    if out is None:
        out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n_rows, n_cols = gate.shape
    most = programs_of(gate)

    def grid(meta):
        return (min(most, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
