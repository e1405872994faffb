# gpu-programming/triton-kernels/swiglu.py | corner | `g = tl.minimum(tl.maximum(g, -30.0), 30.0)` clamps gate "for the exponential", but the clamped g is also the numerator of g / (1 + exp(-g)), so silu(gate) is at most 30 | "silu(gate) = gate / (1 + exp(-gate))", "And for gate = -100 and 100?"; only elements with gate > 30 (gate < -30 gives about -3e-12 for 0, not visible)
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

# BEGIN TODO 1: the blocks the autotuner tries (about 7 lines)
# 8 neighbouring numbers of 16 bits are 16 bytes, the widest load of a thread: 8 to 32 for each thread here.
CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]
# END TODO 1


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
    # BEGIN TODO 2: which row, and which columns of it (about 4 lines)
    blocks = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // blocks).to(tl.int64)
    cols = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    # END TODO 2
    # BEGIN TODO 3: load both in fp32, multiply, and store (about 5 lines)
    mask = cols < n_cols
    g = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    g = tl.minimum(tl.maximum(g, -30.0), 30.0)  # no overflow in exp
    result = g / (1.0 + tl.exp(-g)) * u
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)
    # END TODO 3


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    # BEGIN TODO 4: one program for each block of each row, as the config has it (about 3 lines)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    # END TODO 4
    return out
