# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | swiglu_kernel takes e = exp(-|gate|), so that nothing overflows, and then uses 1 / (1 + e) as the sigmoid for both signs: that is sigmoid(|gate|). All elements with a negative gate are wrong, about half of each matrix, in every dtype and size (a 1 x 1 matrix only if its gate is negative). It should be tl.where(gate >= 0, 1.0, e) / (1.0 + e)
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import itertools

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024 * per}, num_warps=warps)
    for per, warps in itertools.product((1, 2, 4), (4, 8))
    if 1024 * per >= 256 * warps
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):  # fmt: skip
    """out = gate * sigmoid(gate) * up; a program owns a row, and walks along it BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        valid = cols < n_cols
        gate = tl.load(gate_row + cols, mask=valid, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=valid, other=0.0).to(tl.float32)
        # the exponent is never positive: no gate is too large for exp
        e = tl.exp(-tl.abs(gate))
        sigmoid = 1.0 / (1.0 + e)
        y = gate * sigmoid * up
        tl.store(out_row + cols, y.to(out_ptr.dtype.element_ty), mask=valid)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    swiglu_kernel[(n_rows,)](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
