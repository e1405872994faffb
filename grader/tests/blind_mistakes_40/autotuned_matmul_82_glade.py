# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `paired_kernel`, `odd = tl.dot(x1, y1, even, input_precision="ieee")` takes the other accumulator: it should be `odd`. The result is twice the sum of the even blocks plus the last odd block only, so it is wrong in all cases of both functions (exactly doubled for K <= BLOCK_K = 32, up to the bias).
"""Matrix product with two chains of sums: a turn of the loop takes two neighbouring blocks of K."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


# A turn loads 2 * BLOCK_K columns of a, and there are two accumulators: 128 x 128 on 8 warps is the widest.
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 4),
    _config(64, 128, 32, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Drop tiles that the result does not fill, and large ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of c."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def paired_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias). Blocks 0, 2, 4, ... of K go to one sum, 1, 3, 5, ... to the other."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    x_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    y_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    even = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    odd = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        left = K - k
        x0 = tl.load(x_ptrs, mask=row_exists & (ks[None, :] < left), other=0.0)
        y0 = tl.load(y_ptrs, mask=col_exists & (ks[:, None] < left), other=0.0)
        x_ptrs += BLOCK_K * stride_ak
        y_ptrs += BLOCK_K * stride_bk
        x1 = tl.load(x_ptrs, mask=row_exists & (ks[None, :] < left - BLOCK_K), other=0.0)
        y1 = tl.load(y_ptrs, mask=col_exists & (ks[:, None] < left - BLOCK_K), other=0.0)
        x_ptrs += BLOCK_K * stride_ak
        y_ptrs += BLOCK_K * stride_bk
        even = tl.dot(x0, y0, even, input_precision="ieee")
        odd = tl.dot(x1, y1, even, input_precision="ieee")
    acc = even + odd
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    paired_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
