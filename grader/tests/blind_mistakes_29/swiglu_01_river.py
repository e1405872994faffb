# gpu-programming/triton-kernels/swiglu.py | error | swiglu: the grid function `programs` returns a plain int, `n_rows * triton.cdiv(n_cols, meta["BLOCK"])`, not a tuple; Triton takes len() of the grid, so every call stops with a TypeError (int has no len()) before a kernel runs; it should return `(n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)`
"""SwiGLU: silu(gate) * up in one pass, autotuned over the size of a block."""

import torch
import triton
import triton.language as tl

# 8 to 16 numbers for each thread: one or two loads of 16 bytes in 16 bits.
CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than the row, or else the smallest."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """Program number = row * blocks_per_row + block."""
    pid = tl.program_id(axis=0)
    blocks_per_row = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks_per_row).to(tl.int64)
    block = (pid % blocks_per_row).to(tl.int64)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    in_row = cols < n_cols

    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=in_row, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=in_row, other=0.0).to(tl.float32)
    silu = gate / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * stride_out + cols, (silu * up).to(out_ptr.dtype.element_ty), mask=in_row)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices whose rows may be any number of elements apart."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def programs(meta):
        return n_rows * triton.cdiv(n_cols, meta["BLOCK"])

    swiglu_kernel[programs](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
