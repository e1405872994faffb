# gpu-programming/triton-kernels/swiglu.py | error | the decorators of swiglu_kernel are in the wrong order: triton.heuristics stands above triton.autotune, so its lambda for WHOLE runs before a config was chosen, and args has no "BLOCK" yet (KeyError: 'BLOCK' at the launch, in every case). triton.autotune has to be the outermost, with triton.heuristics between it and triton.jit
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row.

    WHOLE says that a row consists of whole blocks: then nothing is masked.
    """
    blocks = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    gate_ptrs = gate_ptr + row * stride_gate + cols
    up_ptrs = up_ptr + row * stride_up + cols
    out_ptrs = out_ptr + row * stride_out + cols
    if WHOLE:
        gate = tl.load(gate_ptrs).to(tl.float32)
        up = tl.load(up_ptrs).to(tl.float32)
        tl.store(out_ptrs, (gate / (1.0 + tl.exp(-gate)) * up).to(out_ptr.dtype.element_ty))
    else:
        inside = cols < n_cols
        gate = tl.load(gate_ptrs, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptrs, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptrs, (gate / (1.0 + tl.exp(-gate)) * up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
