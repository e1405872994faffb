# gpu-programming/triton-kernels/swiglu.py | right | A grid of two axes, rows along axis 0 and blocks of columns along axis 1, in place of dividing the program number, with silu in a helper function and eviction policies on loads and store.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 256 * warps}, num_warps=warps) for warps in (4, 8, 16)]
CONFIGS += [triton.Config({"BLOCK": 512 * warps}, num_warps=warps) for warps in (4, 8)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(z):
    """z * sigmoid(z), of fp32 numbers."""
    return z / (1.0 + tl.exp(-z))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out

    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    exists = cols < n_cols
    # nothing is used twice, so nothing needs to stay in the caches
    up = tl.load(up_ptr + cols, mask=exists, other=0.0, eviction_policy="evict_first").to(tl.float32)
    gate = tl.load(gate_ptr + cols, mask=exists, other=0.0, eviction_policy="evict_first").to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + cols, result.to(out_ptr.dtype.element_ty), mask=exists, eviction_policy="evict_first")


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    # axis 1 may have 65535 programs at most, axis 0 many more: so the rows go along axis 0
    swiglu_kernel[lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
