# gpu-programming/triton-kernels/swiglu.py | error | In `swiglu_kernel`, `silu(gate)` gets gate in the dtype of the tensor, and `tl.sigmoid` in `return z * tl.sigmoid(z)` takes exp, which Triton permits for fp32 and fp64 only: ValueError (Expected dtype ['fp32', 'fp64']) for all fp16 and bf16 calls, also those of the generated code. It should be `silu(gate.to(tl.float32))`. fp32 is right.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl


def candidate(block, warps):
    """One config: columns of a program, and the warps that share them."""
    return triton.Config({"BLOCK": block}, num_warps=warps)


# 8 to 32 numbers for each thread: one to four loads of 16 bytes in 16 bits.
CONFIGS = [
    candidate(1024, 4),
    candidate(2048, 4),
    candidate(2048, 8),
    candidate(4096, 4),
    candidate(4096, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(z):
    """z * sigmoid(z): of a large negative z the sigmoid is 1 / inf, which is 0."""
    return z * tl.sigmoid(z)


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
    BLOCKS: tl.constexpr,
):
    """out = silu(gate) * up; a program owns one of the BLOCKS blocks of a row."""
    pid = tl.program_id(axis=0)
    row = (pid // BLOCKS).to(tl.int64)
    cols = pid % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0)
    up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0)
    result = silu(gate).to(tl.float32) * up.to(tl.float32)
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
