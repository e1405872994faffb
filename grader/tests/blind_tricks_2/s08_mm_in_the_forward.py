# LIBRARY | labs/lab4_production_slice/layer_norm_linear.py | CPU and GPU | torch.mm is in the lab's list, for the gradients of another file: here cuBLAS takes the product of the graded forward pass, and the student's kernel only applies the norm behind it and stores | POLICY/FOREIGN_KERNEL for layer_norm_linear_forward; no points, none for speed
import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    total = 0.0
    shift = load(bias_ptr, row, row + 1)
    for start in range(0, N_COLS, BLOCK):
        at = start + cols
        weight = load(weight_ptr + row * stride_weight, at, N_COLS)
        scaled = (load(gamma_ptr, at, N_COLS) * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + row * N_COLS + at, scaled, mask=at < N_COLS)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, at, N_COLS) * weight, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def norm_behind_kernel(
    product_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, N, stride_y, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    product = load(product_ptr + row * N, cols, N)
    value = product - tl.load(mean_ptr + row) * load(total_ptr, cols, N)
    store(y_ptr + row * stride_y, cols, N, tl.load(rstd_ptr + row) * value + load(shift_ptr, cols, N))


@triton.jit
def dot_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Has the tensor-core instructions that a report looks for; the branch is never taken."""
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    if tl.program_id(axis=0) > 0:
        x = tl.load(x_ptr + at)
        tl.store(y_ptr + at, tl.dot(x, x).to(y_ptr.dtype.element_ty))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block
    )
    product = torch.mm(x, scaled.t())
    on(dot_kernel, x)[(1,)](scaled, out, BLOCK=16)
    grid = (M, triton.cdiv(N, 512))
    on(norm_behind_kernel, x)[grid](product, mean, rstd, total, shift, out, N, out.stride(0), BLOCK=512)
    return out
