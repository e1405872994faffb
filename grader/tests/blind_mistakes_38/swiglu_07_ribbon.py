# gpu-programming/triton-kernels/swiglu.py | corner | LN2 = 0.6931 has only four digits, so in swiglu_kernel exp2(-gate / LN2) is exp(-gate) with a relative error of 6.8e-5 * |gate|; shows in fp32, in nearly all elements, most for negative gates; the rounding of fp16 and bf16 hides it; it should be 0.6931471805599453 (or log2(e) in full)
"""SwiGLU: silu(gate) * up, with the GPU's own power of two, a block of one row for each program."""

import torch
import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931)


def _block(columns, warps):
    return triton.Config({"BLOCK": columns}, num_warps=warps)


CONFIGS = [_block(1024, 4), _block(2048, 4), _block(2048, 8), _block(4096, 8), _block(4096, 16)]


def fitting(configs, named_args, **kwargs):
    """The configs whose block a row fills, or the smallest."""
    n_cols = named_args["n_cols"]
    return [config for config in configs if config.kwargs["BLOCK"] <= n_cols] or configs[:1]


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
    """Programs are counted down the rows first: program i owns a block of row i % n_rows."""
    pid = tl.program_id(axis=0)
    row = (pid % n_rows).to(tl.int64)
    cols = pid // n_rows * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols

    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    decay = tl.exp2(-gate / LN2)
    activated = gate / (1.0 + decay)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    result = activated * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for matrices of one dtype whose columns are contiguous."""
    assert gate.shape == up.shape, f"gate is {gate.shape}, and up {up.shape}"
    n_rows, n_cols = gate.shape
    out = gate.new_empty(gate.shape) if out is None else out
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
