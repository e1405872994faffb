# gpu-programming/triton-kernels/swiglu.py | corner | In swiglu_kernel the sigmoid is computed as 1 - 1 / (1 + exp(gate)), which cancels for negative gates: the small result has only the absolute precision of 1 (6e-8). It shows for clearly negative gates: in fp32 from about -5 down (0 from about -17 down), in fp16 for gates of about -9 to -17, as with huge values; positive gates are right. It should be 1 / (1 + exp(-gate)).
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    per_row = tl.cdiv(n_cols, BLOCK)
    program = tl.program_id(axis=0)
    row = (program // per_row).to(tl.int64)
    col = (program % per_row) * BLOCK + tl.arange(0, BLOCK)
    keep = col < n_cols

    gate = tl.load(gate_ptr + row * stride_gate + col, mask=keep, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + col, mask=keep, other=0.0).to(tl.float32)
    closed = 1.0 / (1.0 + tl.exp(gate))
    opened = 1.0 - closed
    tl.store(out_ptr + row * stride_out + col, gate * opened * up, mask=keep)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, into `out` where one is given."""
    rows, n_cols = gate.shape
    out = gate.new_empty(gate.shape) if out is None else out
    grid = lambda meta: (rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
