# gpu-programming/triton-kernels/swiglu.py | two mistakes | (1) swiglu_kernel: up is read at row * stride_gate in place of row * stride_up, wrong where the rows of gate and up lie at different distances. (2) swiglu, grid: axis 1 has n_cols // BLOCK blocks (at least 1), rounded down, so the tail of a row longer than a block is never stored; it must be cdiv(n_cols, BLOCK).
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

# BEGIN TODO 1: the blocks the autotuner tries (about 7 lines)
CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))]
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
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_gate
    out_ptr += row * stride_out
    # END TODO 2
    # BEGIN TODO 3: load both in fp32, multiply, and store (about 5 lines)
    mask = cols < n_cols
    g = tl.load(gate_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + cols, (g * tl.sigmoid(g) * u).to(out_ptr.dtype.element_ty), mask=mask)
    # END TODO 3


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    # BEGIN TODO 4: one program for each block of each row, as the config has it (about 3 lines)
    n_rows, n_cols = gate.shape


    def grid(meta):
        return n_rows, max(1, n_cols // meta["BLOCK"])


    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    # END TODO 4
    return out
