# gpu-programming/triton-kernels/swiglu.py | contract | in `swiglu`, a missing `out` is allocated by `torch.empty_strided(gate.size(), gate.stride(), ...)`: the numbers are right, but the tensor returned has the row stride of gate and is not contiguous; shows only where no `out` is given and gate has two or more rows that do not touch; it should be `torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)`
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 256 * warps * share}, num_warps=warps) for warps in (4, 8) for share in (1, 2)
]  # 8 or 16 numbers for each thread


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """out = gate * sigmoid(gate) * up; axis 0 of the grid has the rows, axis 1 the blocks of a row."""
    i = tl.program_id(axis=0).to(tl.int64)
    j = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    gate_ptr += i * stride_gate
    up_ptr += i * stride_up
    out_ptr += i * stride_out
    g = tl.load(gate_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
    gated = g * tl.sigmoid(g)
    tl.store(out_ptr + j, (gated * u).to(out_ptr.dtype.element_ty), mask=j < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_strided(gate.size(), gate.stride(), dtype=gate.dtype, device=gate.device)
    rows, cols = gate.shape

    def grid(meta):
        return rows, triton.cdiv(cols, meta["BLOCK"])

    swiglu_kernel[grid](
        gate, up, out, cols, stride_gate=gate.stride(0), stride_up=up.stride(0), stride_out=out.stride(0)
    )
    return out
