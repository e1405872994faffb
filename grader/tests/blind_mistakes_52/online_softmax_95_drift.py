# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: persistent programs in a while loop with an int64 row, a maximum and a sum for each lane that are joined once per row, a finite floor of -3e38 in place of -inf (below all promised values, so that no -inf - -inf arises and no shift is chosen), exp2 with log2(e) after the subtraction, rows of one block kept in registers, and a second sweep from the end of the row to its beginning.
"""Softmax by programs that stay and take row after row, with a finite floor under every lane's maximum."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2112  # 16 for each of 132 multiprocessors
WIDEST = 4096
LOG2E = tl.constexpr(1.4426950408889634)
FLOOR = tl.constexpr(-3.0e38)  # finite, and below every finite value of a row


@triton.jit
def e_to(z):
    return tl.exp2(z * LOG2E)


@triton.jit
def resident_forward(x_ptr, y_ptr, n_rows, n_cols, x_gap, y_gap, W: tl.constexpr, ONE: tl.constexpr):
    """ONE: the row is one block, which stays in registers. Otherwise two sweeps, the second one downwards."""
    lane = tl.arange(0, W)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * x_gap
        y_row = y_ptr + row * y_gap
        if ONE:
            x = tl.load(x_row + lane, mask=lane < n_cols, other=-float("inf"), eviction_policy="evict_first")
            e = e_to(x.to(tl.float32) - tl.max(x.to(tl.float32), axis=0))
            y = e * (1.0 / tl.sum(e, axis=0))
            tl.store(
                y_row + lane, y.to(y_ptr.dtype.element_ty), mask=lane < n_cols, eviction_policy="evict_first"
            )
        else:
            high = tl.full((W,), FLOOR, tl.float32)
            part = tl.zeros((W,), tl.float32)
            for start in range(0, n_cols, W):
                col = start + lane
                x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last")
                x = x.to(tl.float32)
                higher = tl.maximum(high, x)
                part = part * e_to(high - higher) + e_to(x - higher)
                high = higher
            m = tl.max(high, axis=0)
            scale = 1.0 / tl.sum(part * e_to(high - m), axis=0)
            final = (n_cols - 1) // W * W
            for back in range(0, n_cols, W):
                col = final - back + lane
                x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_first")
                y = e_to(x.to(tl.float32) - m) * scale
                tl.store(
                    y_row + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols, eviction_policy="evict_first"
                )
        row += tl.num_programs(0)


@triton.jit
def resident_backward(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, dy_gap, y_gap, dx_gap, W: tl.constexpr, ONE: tl.constexpr
):
    lane = tl.arange(0, W)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * dy_gap
        y_row = y_ptr + row * y_gap
        dx_row = dx_ptr + row * dx_gap
        if ONE:
            ok = lane < n_cols
            g = tl.load(dy_row + lane, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_row + lane, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dx = y * (g - tl.sum(g * y, axis=0))
            tl.store(dx_row + lane, dx.to(dx_ptr.dtype.element_ty), mask=ok, eviction_policy="evict_first")
        else:
            part = tl.zeros((W,), tl.float32)
            for start in range(0, n_cols, W):
                col = start + lane
                ok = col < n_cols
                g = tl.load(dy_row + col, mask=ok, other=0.0, eviction_policy="evict_last").to(tl.float32)
                y = tl.load(y_row + col, mask=ok, other=0.0, eviction_policy="evict_last").to(tl.float32)
                part += g * y
            s = tl.sum(part, axis=0)
            final = (n_cols - 1) // W * W
            for back in range(0, n_cols, W):
                col = final - back + lane
                ok = col < n_cols
                g = tl.load(dy_row + col, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
                y = tl.load(y_row + col, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
                dx = y * (g - s)
                tl.store(dx_row + col, dx.to(dx_ptr.dtype.element_ty), mask=ok, eviction_policy="evict_first")
        row += tl.num_programs(0)


def shape_of_work(n_rows: int, n_cols: int) -> tuple:
    """The grid, and the constants of a launch."""
    w = min(triton.next_power_of_2(n_cols), WIDEST)
    return (min(n_rows, PROGRAMS),), {"W": w, "ONE": n_cols <= w, "num_warps": 8 if w > 2048 else 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid, constants = shape_of_work(n_rows, n_cols)
    resident_forward[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **constants)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    grid, constants = shape_of_work(n_rows, n_cols)
    resident_backward[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **constants
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
