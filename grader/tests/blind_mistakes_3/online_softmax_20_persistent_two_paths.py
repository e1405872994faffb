# labs/lab2_online_softmax/online_softmax.py | honest | short rows (up to 4096 columns) are held in one block by persistent programs that walk over the rows, long ones go to a looping kernel; y is exp(x - m) times the reciprocal of d.
import torch
import triton
import triton.language as tl

SHORT = 4096
LONG = 8192


@triton.jit
def short_forward(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for r in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=2):
        row = tl.cast(r, tl.int64)
        x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e * (1.0 / tl.sum(e, axis=0))
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def short_backward(g_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_g, stride_y, stride_dx, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for r in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=2):
        row = tl.cast(r, tl.int64)
        g = tl.load(g_ptr + row * stride_g + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (g - tl.sum(g * y, axis=0))
        tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def long_forward(inp, res, n_cols, inp_stride, res_stride, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    inp += r * inp_stride
    res += r * res_stride
    m = -float("inf")
    d = 0.0
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        m_new = tl.maximum(m, tl.max(v, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(v - shift), axis=0)
        m = m_new
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(res + c, (tl.exp(v - m) / d).to(res.dtype.element_ty), mask=c < n_cols)


@triton.jit
def long_backward(grad, res, dinp, n_cols, grad_stride, res_stride, dinp_stride, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    grad += r * grad_stride
    res += r * res_stride
    dinp += r * dinp_stride
    mean = 0.0
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        g = tl.load(grad + c, mask=c < n_cols, other=0.0).to(tl.float32)
        p = tl.load(res + c, mask=c < n_cols, other=0.0).to(tl.float32)
        mean += tl.sum(g * p, axis=0)
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        g = tl.load(grad + c, mask=c < n_cols, other=0.0).to(tl.float32)
        p = tl.load(res + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dinp + c, (p * (g - mean)).to(dinp.dtype.element_ty), mask=c < n_cols)


def programs_for(x: torch.Tensor) -> int:
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    return min(x.shape[0], sms * 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    strides = (x.stride(0), out.stride(0))
    if cols <= SHORT:
        block = triton.next_power_of_2(cols)
        warps = min(max(block // 1024, 1), 4)
        short_forward[(programs_for(x),)](x, out, rows, cols, *strides, BLOCK=block, num_warps=warps)
    else:
        long_forward[(rows,)](x, out, cols, *strides, BLOCK=LONG, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    if cols <= SHORT:
        block = triton.next_power_of_2(cols)
        warps = min(max(block // 512, 1), 8)
        short_backward[(programs_for(dy),)](dy, y, out, rows, cols, *strides, BLOCK=block, num_warps=warps)
    else:
        long_backward[(rows,)](dy, y, out, cols, *strides, BLOCK=LONG, num_warps=16)
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
