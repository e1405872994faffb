# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In swiglu_kernel the exponential is `tl.exp2(-gate * LN_2)`: exp(x) is exp2(x * log2(e)), with log2(e) = 1.4427 = 1 / ln 2, not exp2(x * ln 2), so the sigmoid is too flat for every gate but 0, in every case. The factor should be 1.4426950408889634.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

LN_2 = tl.constexpr(0.6931471805599453)


def _config(block, steps, warps):
    return triton.Config({"BLOCK": block, "STEPS": steps}, num_warps=warps)


CONFIGS = [
    _config(512, 1, 2),
    _config(1024, 1, 4),
    _config(1024, 2, 4),
    _config(2048, 1, 8),
    _config(1024, 4, 4),
    _config(2048, 2, 8),
]


def fitting(configs, named_args, **kwargs):
    """Programs whose columns fit in the row, or the first config where none does."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["STEPS"] <= n_cols] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """out = silu(gate) * up; a program owns STEPS blocks of BLOCK columns of one row."""
    pieces = tl.cdiv(n_cols, BLOCK * STEPS)
    pid = tl.program_id(axis=0)
    row = (pid // pieces).to(tl.int64)
    begin = (pid % pieces) * (BLOCK * STEPS)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    for step in tl.static_range(STEPS):
        cols = begin + step * BLOCK + tl.arange(0, BLOCK)
        valid = cols < n_cols
        gate = tl.load(gate_row + cols, mask=valid, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=valid, other=0.0).to(tl.float32)
        # The GPU has an instruction for powers of 2, none for powers of e.
        silu = gate / (1.0 + tl.exp2(-gate * LN_2))
        tl.store(out_row + cols, (silu * up).to(out_ptr.dtype.element_ty), mask=valid)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(gate)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["STEPS"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
