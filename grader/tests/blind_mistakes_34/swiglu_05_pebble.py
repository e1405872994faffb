# gpu-programming/triton-kernels/swiglu.py | contract | in swiglu, `width = whole if min(...) >= whole else n_cols` rounds the number of columns up to a multiple of 16 wherever all three row strides leave room for it: the kernel then reads the up to 15 elements after the end of each row of gate and up and writes their product into the space between the rows of out (and, after the last row, past its end), which the README forbids; the elements of the result are right. It shows where n_cols is no multiple of 16 and all three tensors have padded rows, as 1001 columns with row strides of 1025, 1009 and 1008. width should always be n_cols
"""SwiGLU: silu(gate) * up in blocks of one row, autotuned."""

import torch
import triton
import triton.language as tl


def _config(block, warps):
    return triton.Config({"BLOCK": block}, num_warps=warps)


CONFIGS = [_config(1024, 4), _config(2048, 4), _config(2048, 8), _config(4096, 8)]


def fitting(configs, named_args, **kwargs):
    """Every block up to the width of a row, and at least one."""
    fit = [config for config in configs if config.kwargs["BLOCK"] <= named_args["width"]]
    return fit if fit else configs[:1]


@triton.autotune(configs=CONFIGS, key=["width"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    width,
    gate_step,  # elements from one row to the next
    up_step,
    out_step,
    BLOCK: tl.constexpr,
):
    """One program computes BLOCK neighbouring columns; the blocks of a row follow each other."""
    number = tl.program_id(axis=0)
    blocks = tl.cdiv(width, BLOCK)
    row = (number // blocks).to(tl.int64)
    column = number % blocks * BLOCK + tl.arange(0, BLOCK)
    valid = column < width

    gate = tl.load(gate_ptr + row * gate_step + column, mask=valid, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_step + column, mask=valid, other=0.0).to(tl.float32)
    silu = gate / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * out_step + column, silu * up, mask=valid)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, to `out` where it is given."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty(n_rows, n_cols, dtype=gate.dtype, device=gate.device)
    steps = gate.stride(0), up.stride(0), out.stride(0)
    # Of an argument that is a multiple of 16 Triton knows it, and keeps the wide loads under the mask.
    whole = triton.cdiv(n_cols, 16) * 16
    width = whole if min(steps) >= whole else n_cols
    swiglu_kernel[lambda meta: (triton.cdiv(width, meta["BLOCK"]) * n_rows,)](gate, up, out, width, *steps)
    return out
