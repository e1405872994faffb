"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

# BEGIN TODO 1: the blocks the autotuner tries (about 7 lines)
# 8 neighbouring numbers of 16 bits are 16 bytes, the widest load of a thread: 8 to 32 for each thread here.
CONFIGS = None  # TODO 1: the blocks the autotuner tries
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
    tl.static_assert(False, "TODO 2: which row, and which columns of it")
    # END TODO 2
    # BEGIN TODO 3: load both in fp32, multiply, and store (about 5 lines)
    # Of a large negative gate exp(-gate) is inf, and gate / inf is the 0 that it should be.
    tl.static_assert(False, "TODO 3: load both in fp32, multiply, and store")
    # END TODO 3


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    # BEGIN TODO 4: one program for each block of each row, as the config has it (about 3 lines)
    raise NotImplementedError("TODO 4: one program for each block of each row, as the config has it")
    # END TODO 4
    return out
