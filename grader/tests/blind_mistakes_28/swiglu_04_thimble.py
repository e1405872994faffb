# gpu-programming/triton-kernels/swiglu.py | contract | In swiglu the result is allocated with `torch.empty(gate.shape, device=gate.device)`, without a dtype: where no out is given and the inputs are fp16 or bf16, the new tensor is fp32, not of the dtype of the inputs as the README asks; the numbers are right. It should pass dtype=gate.dtype.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in [(256, 1), (1024, 4), (2048, 4), (4096, 4), (4096, 8)]
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def read(ptr, row, stride, cols, n_cols):
    return tl.load(ptr + row * stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """out = silu(gate) * up; a program owns BLOCK columns of one row."""
    index, per_row = tl.program_id(axis=0), tl.cdiv(n_cols, BLOCK)
    row = index // per_row
    cols = (index - row * per_row) * BLOCK + tl.arange(0, BLOCK)
    row = row.to(tl.int64)

    product = silu(read(gate_ptr, row, stride_gate, cols, n_cols)) * read(up_ptr, row, stride_up, cols, n_cols)
    tl.store(out_ptr + row * stride_out + cols, product, mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    if out is None:
        out = torch.empty(gate.shape, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
