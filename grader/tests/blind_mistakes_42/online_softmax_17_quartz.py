# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_forward`, `out = torch.empty_strided(x.size(), x.stride(), ...)` copies the row stride of x; the README promises a new contiguous matrix, `torch.empty(x.size(), ...)`. The numbers are right; shows where x is padded and no `out` is given (also in `softmax(x)`).
"""Online softmax in powers of two, with block and warps from heuristics; gradient and autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
LOG2E = tl.constexpr(1.4426950408889634)


def power_between(value: int, low: int, high: int) -> int:
    """value, a power of two, but at least low and at most high."""
    return min(max(value, low), high)


@triton.jit
def exp_of_difference(x, top):
    """exp(x - top): the difference first, in which large numbers keep their digits, then the factor."""
    return tl.exp2((x - top) * LOG2E)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST)})
@triton.heuristics(
    {"num_warps": lambda args: 8 if args["BLOCK"] > 8192 else power_between(args["BLOCK"] // 1024, 1, 4)}
)
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    cols = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        x = tl.load(
            x_ptr + start + cols,
            mask=cols < n_cols - start,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= exp_of_difference(m, shift)
        d += tl.sum(exp_of_difference(x, shift))
        m = m_new

    for start in tl.range(0, n_cols, BLOCK):
        x = tl.load(
            x_ptr + start + cols,
            mask=cols < n_cols - start,
            other=-float("inf"),
            eviction_policy="evict_first",
        ).to(tl.float32)
        y = exp_of_difference(x, m) / d
        tl.store(
            y_ptr + start + cols,
            y.to(y_ptr.dtype.element_ty),
            mask=cols < n_cols - start,
            eviction_policy="evict_first",
        )


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST)})
@triton.heuristics({"num_warps": lambda args: power_between(args["BLOCK"] // 512, 4, 32)})
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    cols = tl.arange(0, BLOCK)

    s = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        dy = tl.load(dy_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32))

    for start in tl.range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        dy = tl.load(dy_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_ptr + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty(y.size(), dtype=y.dtype, device=y.device)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0))
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
