# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU, the gated activation between the products of a feed-forward layer, over tiles of rows and columns."""

import torch
import triton
import triton.language as tl

# (rows, columns, warps) of a tile. The flat tile is for short rows: several of them share a program.
CONFIGS = [
    triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps)
    for rows, block, warps in ((8, 128, 4), (2, 512, 4), (1, 1024, 4), (2, 1024, 4), (1, 2048, 4), (1, 4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) with an exponential that is at most 1, for either sign of x."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = gate * sigmoid(gate) * up; a program owns a tile of ROWS rows and BLOCK columns."""
    across = tl.cdiv(n_cols, BLOCK)
    program = tl.program_id(axis=0)
    row = (program // across) * ROWS + tl.arange(0, ROWS)[:, None]
    col = (program % across) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < n_rows) & (col < n_cols)
    row64 = row.to(tl.int64)

    gate = tl.load(gate_ptr + row64 * stride_gate + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row64 * stride_up + col, mask=inside, other=0.0).to(tl.float32)
    result = gate * sigmoid(gate) * up
    tl.store(out_ptr + row64 * stride_out + col, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = gate.shape
    swiglu_kernel[lambda tile: (triton.cdiv(n_rows, tile["ROWS"]) * triton.cdiv(n_cols, tile["BLOCK"]),)](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
