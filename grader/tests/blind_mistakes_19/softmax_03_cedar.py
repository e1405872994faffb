# labs/lab4_production_slice/softmax.py | right | right: one kernel for both directions with a constexpr switch, block width from the autotuner with pruning of the widths that a row cannot fill
"""Softmax and its gradient in one kernel: in both, a row is reduced first and mapped afterwards."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

WIDTHS = {1024: 4, 4096: 8, 16384: 16}  # columns of a block, and its warps


def sensible(configs, named_args, **kwargs):
    """Leave out blocks that are more than half empty, but never the narrowest."""
    n_cols = kwargs["N_COLS"]
    narrowest = min([c.kwargs["BLOCK"] for c in configs])
    return [c for c in configs if c.kwargs["BLOCK"] == narrowest or c.kwargs["BLOCK"] < 2 * n_cols]


@triton.jit
def greatest(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The maximum of a row; at least one number of it is finite."""
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        best = tl.maximum(best, load(row_ptr, start + tl.arange(0, BLOCK), N_COLS, -float("inf")))
    return tl.max(best, axis=0)


@triton.autotune(
    configs=[triton.Config({"BLOCK": width}, num_warps=warps) for width, warps in WIDTHS.items()],
    key=["N_COLS", "GRADIENT"],
    prune_configs_by={"early_config_prune": sensible},
)
@triton.jit
def rows_kernel(
    a_ptr,  # x, or y for the gradient
    b_ptr,  # dy for the gradient, else not read
    out_ptr,
    stride_a,
    stride_b,
    stride_out,
    N_COLS: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = a * (b - sum(a * b)) where GRADIENT, else exp(a - max) / sum(exp(a - max))."""
    row = tl.program_id(axis=0).to(tl.int64)
    a_row = a_ptr + row * stride_a
    b_row = b_ptr + row * stride_b
    out_row = out_ptr + row * stride_out
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    if GRADIENT:
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            acc += load(a_row, cols, N_COLS) * load(b_row, cols, N_COLS)
        s = tl.sum(acc, axis=0)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            a = load(a_row, cols, N_COLS)
            store(out_row, cols, N_COLS, a * (load(b_row, cols, N_COLS) - s))
    else:
        top = greatest(a_row, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            acc += tl.exp(load(a_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf")) - top)
        total = tl.sum(acc, axis=0)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            a = load(a_row, cols, N_COLS, -float("inf"))
            store(out_row, cols, N_COLS, tl.exp(a - top) / total)


def run_rows(a, b, out, gradient):
    """Fill out, or a new matrix like a."""
    out = torch.empty_like(a) if out is None else out
    on(rows_kernel, a)[(a.shape[0],)](
        a, b, out, a.stride(0), b.stride(0), out.stride(0), N_COLS=a.shape[1], GRADIENT=gradient
    )
    return out


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    return run_rows(x, x, out, False)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y."""
    return run_rows(y, dy, out, True)


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
