# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | sigmoid: `1.0 / (1.0 + tail)` with tail = exp(-|z|) is sigmoid(|z|), right only for z >= 0; for negative z it has to be `tail / (1.0 + tail)`. Every element with a negative gate (about half of them) is wrong: gate * sigmoid(|gate|) * up in place of gate * sigmoid(gate) * up. Shows in every case but a tiny one whose gates are all positive (or 0)
"""SwiGLU, silu(gate) * up, autotuned: each program has one block of one row."""

import torch
import triton
import triton.language as tl


def _config(numbers, warps):
    """A block in which each thread has this many neighbouring numbers."""
    return triton.Config({"BLOCK": numbers * 32 * warps}, num_warps=warps)


CONFIGS = [
    _config(8, 4),
    _config(16, 4),
    _config(8, 8),
    _config(16, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    n_cols = named_args["n_cols"]
    short_enough = [config for config in configs if config.kwargs["BLOCK"] <= n_cols]
    return short_enough if short_enough else configs[:1]


@triton.jit
def sigmoid(z):
    """1 / (1 + exp(-z)), from an exponential that is never above 1."""
    tail = tl.exp(-tl.abs(z))
    return 1.0 / (1.0 + tail)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"BLOCKS": lambda args: triton.cdiv(args["n_cols"], args["BLOCK"])})
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
    BLOCKS: tl.constexpr,  # of a row
):
    """out = gate * sigmoid(gate) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    row = (pid // BLOCKS).to(tl.int64)
    cols = (pid % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = gate * sigmoid(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
