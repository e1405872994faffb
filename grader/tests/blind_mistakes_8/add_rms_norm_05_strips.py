# gpu-programming/triton-kernels/add_rms_norm.py | contract | add_rms_norm returns (total, out); the README asks for (out, total).
"""x + residual and its RMSNorm, several rows to a program, with block pointers."""

import torch
import triton
import triton.language as tl

EPS = 1e-5


def configs() -> list:
    return [triton.Config({"R": r, "C": c}, num_warps=w) for r, c, w in [(1, 4096, 8), (1, 2048, 8), (2, 1024, 8), (4, 256, 4)]]


@triton.jit
def tile_of(base, n_rows, n_cols, stride, top, R: tl.constexpr, C: tl.constexpr):
    return tl.make_block_ptr(base, (n_rows, n_cols), (stride, 1), (top, 0), (R, C), (1, 0))


@triton.jit
def read(block):
    return tl.load(block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.autotune(configs=configs(), key=["n_cols"])
@triton.jit
def strip_kernel(
    x_ptr, res_ptr, w_ptr, out_ptr, sum_ptr, n_rows, n_cols, stride_x, stride_res, stride_out, stride_sum, eps,
    R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    top = tl.program_id(0) * R
    x = tile_of(x_ptr, n_rows, n_cols, stride_x, top, R, C)
    res = tile_of(res_ptr, n_rows, n_cols, stride_res, top, R, C)
    sq = tl.zeros((R,), tl.float32)
    for c in range(0, n_cols, C):
        t = read(x) + read(res)
        sq += tl.sum(t * t, axis=1)
        x = tl.advance(x, (0, C))
        res = tl.advance(res, (0, C))
    inv = 1.0 / tl.sqrt(sq / n_cols + eps)
    x = tile_of(x_ptr, n_rows, n_cols, stride_x, top, R, C)
    res = tile_of(res_ptr, n_rows, n_cols, stride_res, top, R, C)
    out = tile_of(out_ptr, n_rows, n_cols, stride_out, top, R, C)
    tot = tile_of(sum_ptr, n_rows, n_cols, stride_sum, top, R, C)
    for c in range(0, n_cols, C):
        cols = c + tl.arange(0, C)
        w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        t = read(x) + read(res)
        tl.store(tot, t.to(sum_ptr.dtype.element_ty), boundary_check=(0, 1))
        y = t * inv[:, None] * w[None, :]
        tl.store(out, y.to(out_ptr.dtype.element_ty), boundary_check=(0, 1))
        x = tl.advance(x, (0, C))
        res = tl.advance(res, (0, C))
        out = tl.advance(out, (0, C))
        tot = tl.advance(tot, (0, C))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(normalised, sum), into `out` and `total` where they are given."""
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    strip_kernel[lambda meta: (triton.cdiv(n_rows, meta["R"]),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return total, out
