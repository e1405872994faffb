# CLOCK | labs/lab2_online_softmax/online_softmax.py | GPU | a long kernel triggers its dependents first and then works; a kernel of one program behind it, launched with launch_pdl and without a wait, may end first: an event or a word written behind the second is then reached while the first still stores | a call counts as done only when all of its kernels are: time includes both, or the outputs are compared before the first is through and the case is WRONG
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=0))
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def last_kernel(word_ptr):
    """Ends at once; what comes next in the stream waits for this kernel."""
    tl.store(word_ptr, 1)


def _end(x):
    if x.is_cuda:
        word = torch.empty((1,), device=x.device, dtype=torch.int32)
        last_kernel[(1,)](word, num_warps=1, launch_pdl=True)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    strides = (x.stride(0), out.stride(0))
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], *strides, BLOCK=block, EARLY=x.is_cuda, num_warps=8)
    _end(x)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    block = triton.next_power_of_2(y.shape[1])
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    gradient_kernel[(y.shape[0],)](dy, y, out, y.shape[1], *strides, BLOCK=block, EARLY=y.is_cuda, num_warps=8)
    _end(y)
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
