# gpu-programming/triton-kernels/swiglu.py | corner | swiglu_kernel: the gate is clamped to [-30, 30] before exp, and the clamped gate is also the factor in front of the sigmoid, so gates above 30 give 30 * up. The clamp may only be in the exponent (it is not needed at all).
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


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
    blocks = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // blocks).to(tl.int64)
    cols = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    ok = cols < n_cols
    g = tl.load(gate_ptr + row * stride_gate + cols, mask=ok, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + cols, mask=ok, other=0.0).to(tl.float32)
    # keep exp in its range
    g = tl.minimum(tl.maximum(g, -30.0), 30.0)
    e = tl.exp(-g)
    silu = g / (1.0 + e)
    tl.store(out_ptr + row * stride_out + cols, (silu * u).to(out_ptr.dtype.element_ty), mask=ok)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
