"""Layer normalisation over rows of any length: forward, backward, and both as a differentiable function."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

# Columns of a block: the values of a longer row do not all stay in registers. Programs of the backward pass,
# each with sums of its own over its rows: two a multiprocessor of a large GPU.
WIDEST, PROGRAMS = 16384, 264
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (2, 4, 8, 16, 32)]


@triton.jit
def load(ptrs, inside):
    """A block in fp32, 0 where nothing is."""
    return tl.load(ptrs, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def statistics(x_row, cols, n_cols, eps, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of one row."""
    # BEGIN TODO 1: the two numbers, for a row of one block or of many (about 10 lines)
    # Sums of differences from a number near the mean: the squares of x itself cancel where the mean is large.
    near = tl.sum(load(x_row + cols, cols < n_cols), axis=0) / min(n_cols, BLOCK)
    sums, squares = tl.zeros((BLOCK,), dtype=tl.float32), tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(BLOCKS):
        offs, inside = i * BLOCK + cols, i * BLOCK + cols < n_cols
        d = tl.where(inside, load(x_row + offs, inside) - near, 0.0)
        sums, squares = sums + d, squares + d * d
    off = tl.sum(sums, axis=0) / n_cols
    return near + off, tl.rsqrt(tl.maximum(tl.sum(squares, axis=0) / n_cols - off * off, 0.0) + eps)
    # END TODO 1


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n_cols, stride_x, stride_y, eps,
                      BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i owns row i.

    x and y are (n_rows, n_cols), weight and bias (n_cols,), all of one dtype, columns contiguous; stride_x
    and stride_y are elements from one row to the next. A row has BLOCKS blocks of BLOCK columns.
    """
    # BEGIN TODO 2: normalise, scale, shift and store the row, block by block (about 9 lines)
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    x_row = x_ptr + row * stride_x
    mean, rstd = statistics(x_row, cols, n_cols, eps, BLOCK, BLOCKS)
    for i in range(BLOCKS):
        offs, inside = i * BLOCK + cols, i * BLOCK + cols < n_cols
        y = (load(x_row + offs, inside) - mean) * rstd * load(weight_ptr + offs, inside)
        y += load(bias_ptr + offs, inside)
        tl.store(y_ptr + row * stride_y + offs, y.to(y_ptr.dtype.element_ty), mask=inside)
    # END TODO 2


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def gradient_kernel(dy_ptr, x_ptr, weight_ptr, dx_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x,
                    stride_dx, eps, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """dx = rstd * (g - mean(g) - n * mean(g * n)), with g = dy * weight and n the normalised row.

    Program (i, k) takes every so many rows and owns block k of them. Its sums over these rows, of dy * n and
    of dy, go to rows i of the two matrices in sums, (2, number of i, n_cols) fp32.
    """
    # BEGIN TODO 3: dx of this program's blocks, and its two sums (about 24 lines)
    # With one block a row the factor is 0: the compiler sees that `own` is `cols`, and loads nothing twice.
    cols, own = tl.arange(0, BLOCK), tl.program_id(axis=1) * (BLOCK * (BLOCKS > 1)) + tl.arange(0, BLOCK)
    valid = own < n_cols
    dweight, dbias = tl.zeros((BLOCK,), dtype=tl.float32), tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(i, tl.int64)
        x_row, dy_row = x_ptr + row * stride_x, dy_ptr + row * stride_dy
        mean, rstd = statistics(x_row, cols, n_cols, eps, BLOCK, BLOCKS)
        sum_g, sum_gn = tl.zeros((BLOCK,), dtype=tl.float32), tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(BLOCKS):
            offs, inside = k * BLOCK + cols, k * BLOCK + cols < n_cols
            g = load(dy_row + offs, inside) * load(weight_ptr + offs, inside)
            sum_g, sum_gn = sum_g + g, sum_gn + g * (load(x_row + offs, inside) - mean) * rstd
        mean_g, mean_gn = tl.sum(sum_g, axis=0) / n_cols, tl.sum(sum_gn, axis=0) / n_cols
        dy, n = load(dy_row + own, valid), (load(x_row + own, valid) - mean) * rstd
        dx = rstd * (dy * load(weight_ptr + own, valid) - mean_g - n * mean_gn)
        tl.store(dx_ptr + row * stride_dx + own, dx.to(dx_ptr.dtype.element_ty), mask=valid)
        dweight, dbias = dweight + dy * n, dbias + dy
    tl.store(sums_ptr + tl.program_id(axis=0) * n_cols + own, dweight, mask=valid)
    tl.store(sums_ptr + (tl.num_programs(axis=0) + tl.program_id(axis=0)) * n_cols + own, dbias, mask=valid)
    # END TODO 3


@triton.autotune(configs=[triton.Config({"ROWS": 32})], key=[])
@triton.jit
def column_sums_kernel(sums_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of sums[i, j], (n_rows, n_cols) fp32, contiguous; program k owns COLS columns."""
    # BEGIN TODO 4: add the rows up, always in the same order (about 7 lines)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        total += load(sums_ptr + rows.to(tl.int64) * n_cols + cols, (rows < n_rows) & (cols < n_cols))
    tl.store(out_ptr + cols, tl.sum(total, axis=0).to(out_ptr.dtype.element_ty), mask=cols < n_cols)
    # END TODO 4


def blocks(x) -> dict[str, int]:
    """The width of a block, a power of two, and how many a row of x has."""
    block = min(triton.next_power_of_2(x.shape[1]), WIDEST)
    return {"BLOCK": block, "BLOCKS": triton.cdiv(x.shape[1], block)}


def on(kernel, traced: bool):
    """The kernel, or what torch.compile can see of it, for the body of an operator."""
    return wrap_triton(kernel) if traced else kernel


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None, traced=False) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, (n_rows, n_cols) fp32, fp16 or
    bf16 with contiguous columns; weight and bias are (n_cols,) of that dtype. The result goes to `out`, like
    x, where one is given; rows of both may be any number of elements apart. The variance divides by n_cols.
    After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 3 lines)
    launch = on(layer_norm_kernel, traced)[(x.shape[0],)]
    launch(x, weight, bias, out, x.shape[1], x.stride(0), out.stride(0), eps, **blocks(x))
    # END TODO 5
    return out


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None, traced=False):
    """Gradients of layer_norm with respect to x, weight and bias from dy, which is like x: the three in that
    order, written to `dx`, `dweight` and `dbias` where they are given.
    """
    pairs = ((dx, x), (dweight, weight), (dbias, weight))
    dx, dweight, dbias = (torch.empty_like(like) if out is None else out for out, like in pairs)
    # BEGIN TODO 6: launch both kernels of the backward pass (about 8 lines)
    n_rows, n_cols, meta, programs = *x.shape, blocks(x), min(x.shape[0], PROGRAMS)
    sums = torch.empty((2, programs, n_cols), device=x.device, dtype=torch.float32)
    launch = on(gradient_kernel, traced)[(programs, meta["BLOCKS"])]
    launch(dy, x, weight, dx, sums, n_rows, n_cols, dy.stride(0), x.stride(0), dx.stride(0), eps, **meta)
    for total, out in ((sums[0], dweight), (sums[1], dbias)):
        on(column_sums_kernel, traced)[(triton.cdiv(n_cols, 64),)](total, out, programs, n_cols, COLS=64)
    # END TODO 6
    return dx, dweight, dbias


@triton_op("course::layer_norm", mutates_args=())
def forward_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps, traced=True)


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> list[torch.Tensor]:
    """layer_norm_backward, likewise."""
    return list(layer_norm_backward(dy, x, weight, eps=eps, traced=True))


class LayerNorm(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """y from x, weight and bias."""
        # BEGIN TODO 7: the result, and what the gradient needs (about 3 lines)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return forward_op(x, weight, bias, eps)
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        """dx, dweight and dbias from dy, and None for eps."""
        # BEGIN TODO 8: the gradients (about 2 lines)
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None
        # END TODO 8


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, for use under torch.compile, too."""
    return LayerNorm.apply(x, weight, bias, eps)
