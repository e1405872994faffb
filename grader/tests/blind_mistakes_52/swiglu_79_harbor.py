# gpu-programming/triton-kernels/swiglu.py | right | A program keeps its columns and one mask and walks down WALK rows (1 or 4, chosen by the autotuner); the sigmoid is computed from exp2(-log2(e) * abs(x)), so that no exponential is above 1.
"""SwiGLU by programs that keep their columns and walk down a few rows."""

import torch
import triton
import triton.language as tl

MINUS_LOG2E = tl.constexpr(-1.4426950408889634)

# Columns, rows of a walk, and warps: a thread loads 8 or 16 numbers of a row at once.
CONFIGS = [
    triton.Config({"BLOCK": 128 * each * (warps // 4), "WALK": walk}, num_warps=warps, num_stages=1)
    for each, warps in ((8, 4), (16, 4), (8, 8), (16, 8))
    for walk in (1, 4)
]


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than the row, the first one for a short row."""
    n_cols = named_args["n_cols"]
    kept = [config for config in configs if config.kwargs["BLOCK"] <= n_cols]
    return kept or configs[:1]


@triton.jit
def logistic(x):
    """1 / (1 + exp(-x)) of either sign, from a power that is never above 1."""
    small = tl.exp2(MINUS_LOG2E * tl.abs(x))
    return tl.where(x < 0.0, small, 1.0) / (1.0 + small)


@triton.autotune(
    configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, WALK: tl.constexpr,
):  # fmt: skip
    """Programs beside each other own the blocks of the same WALK rows."""
    blocks = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    top = (pid // blocks) * WALK
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in range(top, tl.minimum(top + WALK, n_rows)):
        far = row.to(tl.int64)
        gate = tl.load(gate_ptr + far * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + far * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
        result = gate * logistic(gate) * up
        tl.store(out_ptr + far * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    result = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device) if out is None else out

    def grid(meta):
        return (triton.cdiv(n_rows, meta["WALK"]) * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](
        gate, up, result, n_rows, n_cols,
        gate.stride(0), up.stride(0), result.stride(0),
    )  # fmt: skip
    return result
