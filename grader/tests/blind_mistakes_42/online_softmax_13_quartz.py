# labs/lab2_online_softmax/online_softmax.py | error | In `online_softmax_kernel`, `tl.max(x, axis=1, keepdim=True)` and `tl.sum(..., axis=1, keepdim=True)`: the parameter is called `keep_dims` in Triton (`keepdim` is PyTorch's), so the kernel does not compile, in all cases. With `keep_dims=True` the file is right.
"""Softmax over rows, several narrow rows to a program, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements of the widest tile
NARROW_TILE = 2048  # elements of a tile of several rows


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns ROWS rows from i * ROWS on."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    m = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows) & (start + cols < n_cols)
        x = tl.load(x_rows + start + cols, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keepdim=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keepdim=True)
        m = m_new

    # Rows past the last one have neither maximum nor sum; they are not stored.
    m = tl.where(rows < n_rows, m, 0.0)
    scale = 1.0 / tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows) & (start + cols < n_cols)
        x = tl.load(x_rows + start + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) * scale
        tl.store(y_rows + start + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns ROWS rows from i * ROWS on."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows) & (start + cols < n_cols)
        dy = tl.load(dy_rows + start + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_rows + start + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=1)

    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows) & (start + cols < n_cols)
        dy = tl.load(dy_rows + start + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_rows + start + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s[:, None])
        tl.store(dx_rows + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def tile_of(n_cols: int, columns_of_a_warp: int) -> dict:
    """Rows and columns of a tile, and its warps: one row if it is wide, several if they are narrow."""
    block = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(max(NARROW_TILE // block, 1), 16)
    warps = min(max(rows * block // columns_of_a_warp, 1), 16)
    return {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    tile = tile_of(n_cols, 1024)
    online_softmax_kernel[(triton.cdiv(n_rows, tile["ROWS"]),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), **tile
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    tile = tile_of(n_cols, 512)
    softmax_backward_kernel[(triton.cdiv(n_rows, tile["ROWS"]),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **tile
    )
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
