# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `backward_rows`, `sums = tl.zeros((BLOCK,), dtype=tl.float32)` stands before `while row < n_rows:` and belongs into it: the second and later rows of a program add to the sums of its earlier rows, so rows from the number of programs on are wrong (more rows than programs: without a GPU 8 or fewer programs, on a GPU 264 to 1056). (2) In `OnlineSoftmax.backward`, `if dy.stride(0) == 0:` before `dy = dy.contiguous()` catches only a dy expanded along rows; transposed dy, every second column, or dy expanded along columns alone (strides (1, 0)) go to a kernel that assumes contiguous columns. It should be `dy = dy.contiguous()` always.
"""Online softmax and its gradient: as many programs as the GPU runs at a time, each with every k-th row."""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192
WARPS_MAX = 16


@triton.jit
def forward_rows(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def backward_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    # Sums of y * dy, one for each lane, until the end of the row.
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            sums += y * dy
        s = tl.sum(sums, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def plan(matrix: torch.Tensor, columns: int):
    """Programs, width of a block, and warps of `columns` columns each."""
    n_rows, n_cols = matrix.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    warps = min(max(block // columns, 4), WARPS_MAX)
    processors = 1
    if matrix.is_cuda:
        processors = torch.cuda.get_device_properties(matrix.device).multi_processor_count
    return min(n_rows, processors * (32 // warps)), block, warps


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns are contiguous, rows any distance apart."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    programs, block, warps = plan(x, 1024)
    forward_rows[(programs,)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    programs, block, warps = plan(dy, 512)
    backward_rows[(programs,)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
        if dy.stride(0) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
