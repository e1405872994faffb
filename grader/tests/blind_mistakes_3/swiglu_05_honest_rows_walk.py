# gpu-programming/triton-kernels/swiglu.py | honest | a fixed number of programs for each block of columns walks down the rows, two rows a step in flight (a 2 x BLOCK tile); the sigmoid is written with exp of -|gate|, which never overflows.
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
    n_rows,
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns and walks down the rows."""
    cols = (tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    step = tl.num_programs(axis=1) * 2
    for first in range(tl.program_id(axis=1) * 2, n_rows, step):
        rows = (first + tl.arange(0, 2)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
        e = tl.exp(-tl.abs(gate))
        sigmoid = tl.where(gate >= 0, 1.0, e) / (1.0 + e)
        tl.store(out_ptr + rows * stride_out + cols, (gate * sigmoid * up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    walkers = min(triton.cdiv(n_rows, 2), 4096)
    swiglu_kernel[lambda meta: (triton.cdiv(n_cols, meta["BLOCK"]), walkers)](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
