# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | `result = silu(gate * up)` in `swiglu_kernel` should be `silu(gate) * up`: the product, not the gate, goes through the activation. Shows in all cases, wherever up is not 1.
"""SwiGLU, silu(gate) * up: a fixed number of programs walks over all blocks of the matrix."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
PROGRAMS = 2112  # sixteen for each of the 132 multiprocessors of an H200

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((4096, 8), (4096, 4), (2048, 8), (2048, 4), (1024, 4))
]


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than a row; for a short row the smallest one."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[-1:]


@triton.jit
def silu(z):
    """z / (1 + e^-z), with the instruction for powers of two."""
    return z / (1.0 + tl.exp2(z * -LOG2E))


@triton.jit
def fp32_block(ptr, cols, n_cols):
    """Columns `cols` of the row at ptr in fp32, 0 past its end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


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
    BLOCK: tl.constexpr,
):
    """Program i takes blocks i, i + programs, i + 2 programs, ...; blocks are counted row by row."""
    blocks = (n_cols + BLOCK - 1) // BLOCK
    lanes = tl.arange(0, BLOCK)
    for tile in range(tl.program_id(axis=0), n_rows * blocks, tl.num_programs(axis=0)):
        row = tl.cast(tile // blocks, tl.int64)
        cols = tile % blocks * BLOCK + lanes
        gate = fp32_block(gate_ptr + row * stride_gate, cols, n_cols)
        up = fp32_block(up_ptr + row * stride_up, cols, n_cols)
        result = silu(gate * up)
        tl.store(
            out_ptr + row * stride_out + cols,
            result.to(out_ptr.dtype.element_ty),
            mask=cols < n_cols,
        )


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gated activation for (n_rows, n_cols) matrices with contiguous columns and any row stride."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (min(PROGRAMS, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
