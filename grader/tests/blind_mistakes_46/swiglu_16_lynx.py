# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `silu`: `tl.exp2(-0.6931471805599453 * x)` has ln(2) where log2(e) = 1.4426950408889634 belongs: exp(x) = exp2(x * log2(e)). All cases are wrong (the sigmoid is too flat).
"""SwiGLU in one pass: a program keeps its columns and walks down the rows, autotuned."""

import torch
import triton
import triton.language as tl

# With 16 bits a thread loads 16 bytes at once where it has 8 numbers or more.
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((512, 2), (1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
]
WALKERS = 2048  # programs that share the rows of one block of columns


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)) through the power of two, which a GPU has an instruction for."""
    return x / (1.0 + tl.exp2(-0.6931471805599453 * x))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """Axis 0 counts the blocks of columns; of n programs along axis 1 program i has rows i, i + n, i + 2 n ..."""
    cols = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    first = tl.program_id(axis=1).to(tl.int64)
    gate_row = gate_ptr + first * stride_gate
    up_row = up_ptr + first * stride_up
    out_row = out_ptr + first * stride_out
    walkers = tl.num_programs(axis=1).to(tl.int64)
    for _ in tl.range(tl.program_id(axis=1), n_rows, tl.num_programs(axis=1)):
        gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)
        result = silu(gate) * up
        tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=inside)
        gate_row += walkers * stride_gate
        up_row += walkers * stride_up
        out_row += walkers * stride_out


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (triton.cdiv(n_cols, meta["BLOCK"]), min(n_rows, WALKERS))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
