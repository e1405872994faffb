"""EXPECT PASS from matmul and matmul_bias_relu: helper functions, and an activation chosen by its name."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu(x):
    return tl.where(x >= 0, x, 0.0)


@triton.jit
def tile_of(pid, rows, cols, SNAKE: tl.constexpr):
    """Row by row, every second row backwards: the next tile always borders on the last."""
    row = pid // cols
    col = pid % cols
    if SNAKE:
        col = tl.where(row % 2 == 0, col, cols - 1 - col)
    return row, col


@triton.jit
def masked_tile(ptr, rows, cols, row_stride, col_stride, n_rows, n_cols):
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    return tl.load(ptr + rows[:, None] * row_stride + cols[None, :] * col_stride, mask=inside, other=0.0)


@triton.jit
def named_activation_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr,
    M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row, col = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), SNAKE=True)
    offs_m = row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = col.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        offs_k = k * BLOCK_K + tl.arange(0, BLOCK_K)
        a = masked_tile(a_ptr, offs_m, offs_k, stride_am, stride_ak, M, K)
        b = masked_tile(b_ptr, offs_k, offs_n, stride_bk, stride_bn, K, N)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
    if ACTIVATION == "relu":
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
        accumulator = relu(accumulator + bias[None, :].to(tl.float32))
    c = accumulator.to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + stride_cm * offs_m[:, None] + stride_cn * offs_n[None, :]
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)


def product(a, b, bias, out, activation=""):
    assert a.shape[1] == b.shape[0], "incompatible sizes"
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tile = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64}
    programs = triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"])
    named_activation_kernel[(programs,)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        ACTIVATION=activation, **tile,
    )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    return product(a, b, bias=b, out=out)


def matmul_bias_relu(a, b, bias, *, out=None):
    return product(a, b, bias=bias, out=out, activation="relu")
