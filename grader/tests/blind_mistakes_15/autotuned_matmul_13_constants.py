# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | tl.dot is called with input_precision="fp32", which Triton does not have (tf32, tf32x3, ieee): the kernel does not compile. It should be "ieee".
"""Matrix product with tensor cores, fused with bias and ReLU."""

import torch
import triton
import triton.language as tl

GROUP = 8
LARGEST = 256
LARGEST_FP32 = 64
SMALL = triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": GROUP}, num_stages=3, num_warps=4)
MEDIUM = triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": GROUP}, num_stages=3, num_warps=8)
WIDE = triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": GROUP}, num_stages=3, num_warps=8)
TALL = triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": GROUP}, num_stages=3, num_warps=8)


def only_what_fits(configs, named_args, **kwargs):
    limit = LARGEST_FP32 if named_args["a_ptr"].dtype == torch.float32 else LARGEST
    limit = min(limit, named_args["M"], named_args["N"])
    chosen = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return chosen if chosen else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    group = tile // (columns * GROUP_M)
    offset = tile - group * columns * GROUP_M
    height = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - group * GROUP_M)
    row = group * GROUP_M + offset % height
    column = offset // height
    return row * BLOCK_M, column * BLOCK_N


@triton.jit
def relu(x):
    return tl.where(x > 0.0, x, 0.0)


@triton.autotune([WIDE, TALL, MEDIUM, SMALL], key=["M", "N", "K"], prune_configs_by={"early_config_prune": only_what_fits})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    rows_in = rows[:, None] < M
    cols_in = cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=rows_in & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=cols_in & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="fp32")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = relu(acc + bias.to(tl.float32)[None, :])
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=rows_in & cols_in,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
