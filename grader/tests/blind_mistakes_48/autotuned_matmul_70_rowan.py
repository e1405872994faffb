# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | `turned = a.new_empty((N, M)) if out is None else out.T` with `return turned.T if out is None else out` in `_launch`: without `out` and with b as a transposed view, the result is a transposed view with strides (1, M), where the README asks for a new contiguous (M, N) matrix. It should be `out = a.new_empty((M, N))`, and its `.T` for the kernel. The numbers are right; shows in calls without `out` where b is transposed (NT) and M and N are larger than 1.
"""Autotuned matmul that computes C^T = B^T A^T where B is a transposed view, as a weight of a Linear layer is."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no larger than the result, and the last one for fp32."""
    if named_args["x_ptr"].dtype == torch.float32:
        return configs[-1:]
    M, N = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= M and c.kwargs["BLOCK_N"] <= N]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of the result."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K", "BIAS_AXIS"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn,
    BIAS_RELU: tl.constexpr, BIAS_AXIS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """z = x @ y, or relu(z + bias), where the bias has a value for each row (axis 0) or column (axis 1) of z."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows * stride_xm + ks[None, :] * stride_xk
    y_ptrs = y_ptr + ks[:, None] * stride_yk + cols * stride_yn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        y = tl.load(y_ptrs, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_ptrs += BLOCK_K * stride_xk
        y_ptrs += BLOCK_K * stride_yk

    if BIAS_RELU:
        if BIAS_AXIS == 0:
            bias = tl.load(bias_ptr + rows, mask=rows < M, other=0.0)
        else:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    z_ptrs = z_ptr + rows * stride_zm + cols * stride_zn
    tl.store(z_ptrs, acc.to(z_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _product(x, y, bias, z, bias_relu, bias_axis):
    (M, K), N = x.shape, y.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](
        x, y, z, bias, M, N, K, *x.stride(), *y.stride(), *z.stride(),
        BIAS_RELU=bias_relu, BIAS_AXIS=bias_axis,
    )  # fmt: skip


def _launch(a, b, bias, out, bias_relu):
    M, N = a.shape[0], b.shape[1]
    flipped = b.stride(0) == 1 and b.stride(1) > 1
    if flipped:
        # The rows of b.T lie one behind the other, so b.T is the better first operand.
        turned = a.new_empty((N, M)) if out is None else out.T
        _product(b.T, a.T, bias, turned, bias_relu, bias_axis=0)
        return turned.T if out is None else out
    if out is None:
        out = a.new_empty((M, N))
    _product(a, b, bias, out, bias_relu, bias_axis=1)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
