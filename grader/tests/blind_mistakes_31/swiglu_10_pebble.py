# gpu-programming/triton-kernels/swiglu.py | corner | swiglu_kernel bounds the exponent with tl.minimum(-gate, 15.0), so the sigmoid never falls below about 3e-7, and for a gate below -15 the result is gate * 3e-7 * up where it should be almost 0 (gate * exp(gate) * up); it shows only for large negative gates (the huge values, 7 x 1009, fp32 and fp16; also for single gates below -15). No bound is needed: exp(-gate) may be inf, and gate / inf is 0
"""SwiGLU with a fixed number of programs, each of which takes one block after the other."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2048  # about 16 for each SM of a large GPU

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def activation(gate):
    """gate * sigmoid(gate) in fp32."""
    # exp(15) is 3269017: the sum below stays far from the end of the range.
    e = tl.exp(tl.minimum(-gate, 15.0))
    return gate / (1.0 + e)


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
    """out = silu(gate) * up; program p has the blocks p, p + programs, p + 2 programs, counted row by row."""
    p, programs = tl.program_id(axis=0).to(tl.int64), tl.num_programs(axis=0)
    in_a_row = tl.cdiv(n_cols, BLOCK)
    turns = tl.cdiv(n_rows * in_a_row - p, programs)
    for turn in range(0, turns):
        block = p + turn * programs
        row = block // in_a_row
        cols = (block % in_a_row) * BLOCK + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0)
        up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0)
        product = activation(gate.to(tl.float32)) * up.to(tl.float32)
        tl.store(out_ptr + row * stride_out + cols, product.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, rows any number of elements apart."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (min(PROGRAMS, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
