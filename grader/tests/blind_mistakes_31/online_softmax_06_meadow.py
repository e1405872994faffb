# labs/lab2_online_softmax/online_softmax.py | corner | In forward_kernel a finite number, `LOW = -1.0e9`, stands in for minus infinity, as the start of m and in the lanes past the end of the row (`tl.where(inside, x, LOW)`); it shows only in fp32 (or bf16) rows whose values all lie below about -1e9 (README: up to 1e28 from 0): m stays LOW, d counts only the lanes past the end, and y is 0 everywhere (NaN where there is no such lane). LOW should be -float("inf"), with a guard for -inf - (-inf), or a number below -1e28.
import torch
import triton
import triton.language as tl

CHUNK = 4096


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, sx, sy, CHUNK: tl.constexpr):
    LOW: tl.constexpr = -1.0e9
    pid = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, CHUNK)
    n_chunks = tl.cdiv(n_cols, CHUNK)

    m = LOW
    d = 0.0
    for c in range(0, n_chunks):
        col = c * CHUNK + j
        inside = col < n_cols
        x = tl.load(x_ptr + pid * sx + col, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(inside, x, LOW)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m

    for c in range(0, n_chunks):
        col = c * CHUNK + j
        inside = col < n_cols
        x = tl.load(x_ptr + pid * sx + col, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(inside, x, LOW)
        p = tl.exp(x - m) / d
        tl.store(y_ptr + pid * sy + col, p.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, sdy, sy, sdx, CHUNK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, CHUNK)
    n_chunks = tl.cdiv(n_cols, CHUNK)

    mean = 0.0  # of dy, weighted with y
    for c in range(0, n_chunks):
        col = c * CHUNK + j
        inside = col < n_cols
        dy = tl.load(dy_ptr + pid * sdy + col, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + pid * sy + col, mask=inside, other=0.0).to(tl.float32)
        mean += tl.sum(dy * y, axis=0)

    for c in range(0, n_chunks):
        col = c * CHUNK + j
        inside = col < n_cols
        dy = tl.load(dy_ptr + pid * sdy + col, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + pid * sy + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + pid * sdx + col, (y * (dy - mean)).to(dx_ptr.dtype.element_ty), mask=inside)


def launch_options(n_cols: int, columns_per_warp: int):
    """Width of a chunk and number of warps, both powers of two."""
    chunk = min(triton.next_power_of_2(n_cols), CHUNK)
    return {"CHUNK": chunk, "num_warps": max(1, chunk // columns_per_warp)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    options = launch_options(x.shape[1], 1024)
    forward_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    options = launch_options(dy.shape[1], 512)
    backward_kernel[(dy.shape[0],)](
        dy, y, out, dy.shape[1], dy.stride(0), y.stride(0), out.stride(0), **options
    )
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
