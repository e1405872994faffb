# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU as strips: a few programs share a row, and each of them strides along it."""

import torch
import triton
import triton.language as tl

MOST_STRIPS = 64  # programs that share a row, at most

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (1024, 2), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
]


def fitting(configs, named_args, **kwargs):
    """Blocks that a row fills at least once, and the first one if a row is shorter than all of them."""
    n_cols = named_args["n_cols"]
    kept = []
    for config in configs:
        if config.kwargs["BLOCK"] <= n_cols:
            kept.append(config)
    return kept if len(kept) > 0 else configs[:1]


@triton.jit
def silu(z):
    return z * tl.sigmoid(z)


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
    """Program (i, j) computes every num_programs(1)-th block of row i, from block j on."""
    row = tl.program_id(0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    lanes = tl.arange(0, BLOCK)

    for start in range(tl.program_id(1) * BLOCK, n_cols, tl.num_programs(1) * BLOCK):
        cols = start + lanes
        live = cols < n_cols
        gate = tl.load(gate_ptr + cols, mask=live, other=0.0)
        up = tl.load(up_ptr + cols, mask=live, other=0.0)
        product = silu(gate.to(tl.float32)) * up.to(tl.float32)
        tl.store(out_ptr + cols, product.to(gate.dtype), mask=live)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, row by row; `out` gets it where one is given, else a new contiguous matrix."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))

    def grid(meta):
        return n_rows, min(triton.cdiv(n_cols, meta["BLOCK"]), MOST_STRIPS)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
