# gpu-programming/triton-kernels/swiglu.py | right | Contiguous matrices are passed as a single long row (columns as int64), all others row by row with the same kernel; a heuristic `NO_TAIL` drops the masks where the row is whole blocks.
"""SwiGLU: contiguous matrices are taken as one long row, others row by row, by the same kernel."""

import math

import torch
import triton
import triton.language as tl

MINUS_LOG2E = tl.constexpr(-math.log2(math.e))

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    triton.Config({"BLOCK": 8192}, num_warps=8),
]


def worth_a_try(configs, named_args, **kwargs):
    """Blocks that a row fills at least once; the smallest one if there is none."""
    width = named_args["width"]
    return [config for config in configs if config.kwargs["BLOCK"] <= width] or configs[:1]


def no_tail(args):
    """Whether the last block of a row is a whole one, so that nothing needs a mask."""
    return args["width"] % args["BLOCK"] == 0


@triton.jit
def read(row_ptr, cols, width, NO_TAIL: tl.constexpr):
    """A block of a row in fp32."""
    if NO_TAIL:
        block = tl.load(row_ptr + cols)
    else:
        block = tl.load(row_ptr + cols, mask=cols < width, other=0.0)
    return block.to(tl.float32)


@triton.jit
def write(row_ptr, cols, width, values, NO_TAIL: tl.constexpr):
    """Store a block of a row in the dtype of the row."""
    rounded = values.to(row_ptr.dtype.element_ty)
    if NO_TAIL:
        tl.store(row_ptr + cols, rounded)
    else:
        tl.store(row_ptr + cols, rounded, mask=cols < width)


@triton.autotune(configs=CONFIGS, key=["width"], prune_configs_by={"early_config_prune": worth_a_try})
@triton.heuristics({"NO_TAIL": no_tail})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    width,  # columns of a row; more than 2^31 are possible where a whole matrix is one row
    step_gate,
    step_up,
    step_out,
    BLOCK: tl.constexpr,
    NO_TAIL: tl.constexpr,
):
    """out = gate / (1 + 2^(-gate * log2(e))) * up for one block of one row."""
    blocks = tl.cdiv(width, BLOCK)
    pid = tl.program_id(axis=0)
    row = tl.cast(pid // blocks, tl.int64)
    cols = tl.cast(pid % blocks, tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate = read(gate_ptr + row * step_gate, cols, width, NO_TAIL)
    up = read(up_ptr + row * step_up, cols, width, NO_TAIL)
    write(out_ptr + row * step_out, cols, width, gate / (1.0 + tl.exp2(gate * MINUS_LOG2E)) * up, NO_TAIL)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for matrices (n_rows, n_cols) with contiguous columns and row strides of their own."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    height, width = gate.shape
    if gate.is_contiguous() and up.is_contiguous() and out.is_contiguous():
        height, width = 1, height * width
    swiglu_kernel[lambda meta: (height * triton.cdiv(width, meta["BLOCK"]),)](
        gate, up, out, width, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
