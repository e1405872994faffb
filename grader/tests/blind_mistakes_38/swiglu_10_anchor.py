# gpu-programming/triton-kernels/swiglu.py | contract | without `out`, swiglu allocates by torch.empty_strided with the strides of gate, so for padded rows the returned tensor is not contiguous, although the README asks for a new contiguous tensor; shows only where `out` is not given and the rows of gate lie apart; it should be torch.empty(gate.shape, ...)
"""SwiGLU: as many programs as keep the GPU busy walk over the blocks of all rows."""

import torch
import triton
import triton.language as tl

MOST = 132 * 16

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Blocks that a row fills; a short row has the first one."""
    kept = [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]]
    return kept if kept else configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), which is 0 where exp(-x) is inf."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """Block number i is block i % in_row of row i // in_row; program p takes p, p + programs, and so on."""
    in_row = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(axis=0)
    for number in range(pid, n_rows * in_row, tl.num_programs(axis=0)):
        row = (number // in_row).to(tl.int64)
        cols = number % in_row * BLOCK + tl.arange(0, BLOCK)
        within = cols < n_cols
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=within, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * stride_up + cols, mask=within, other=0.0).to(tl.float32)
        silu = gate * sigmoid(gate)
        tl.store(out_ptr + row * stride_out + cols, (silu * up).to(out_ptr.dtype.element_ty), mask=within)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, element by element, for two matrices of one shape and dtype."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty_strided(gate.shape, gate.stride(), dtype=gate.dtype, device=gate.device)
    grid = lambda meta: (min(MOST, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
