# gpu-programming/triton-kernels/swiglu.py | contract | swiglu stores `width` columns of each row, n_cols rounded up to a multiple of 8 as far as the row stride of out leaves room, and not n_cols: all results are right, but where n_cols is no multiple of 8 and the rows of out lie apart, zeros are written to the space between rows (and behind the last row), which the README forbids; the mask of the store should be cols < n_cols
"""SwiGLU, the gated activation between the products of a feed-forward layer, autotuned."""

import torch
import triton
import triton.language as tl

VECTOR = 8
CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_cols, width,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    readable = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=readable, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=readable, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=cols < width)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    vectors = triton.cdiv(n_cols, VECTOR)
    width = max(n_cols, min(vectors * VECTOR, out.stride(0)))
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, width, gate.stride(0), up.stride(0), out.stride(0))
    return out
