# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Each program computes four quarters of a tile with four accumulators and four `tl.dot` a step (two loads of a, two of b), and stores each by a helper with the epilogue; nothing is wrong.
"""Matrix product in tiles of four quarters: each program keeps four sums side by side, autotuned."""

import torch
import triton
import triton.language as tl

# Half a tile in each direction, the step along K, stages, warps. The last one is for small results and fp32.
SHAPES = (
    (64, 128, 64, 3, 8),
    (64, 64, 64, 4, 8),
    (64, 64, 64, 3, 4),
    (64, 64, 32, 4, 4),
    (64, 32, 64, 4, 4),
    (64, 32, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"HALF_M": hm, "HALF_N": hn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for hm, hn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs whose tile is no larger than the result; the smallest one for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if 2 * max(c.kwargs["HALF_M"], c.kwargs["HALF_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c, in groups of GROUP_M rows of tiles."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    top = group * GROUP_M
    height = tl.minimum(down - top, GROUP_M)
    within = tile - group * (GROUP_M * across)
    return (top + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Bias and ReLU for one quarter, where they are asked for, and its store."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def quarters_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    HALF_M: tl.constexpr, HALF_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); one program owns four quarters of HALF_M x HALF_N."""
    m, n = place(tl.program_id(axis=0), M, N, 2 * HALF_M, 2 * HALF_N, GROUP_M)
    upper = (m + tl.arange(0, HALF_M)).to(tl.int64)
    lower = upper + HALF_M
    left = (n + tl.arange(0, HALF_N)).to(tl.int64)
    right = left + HALF_N
    ks = tl.arange(0, BLOCK_K)

    a_steps = ks[None, :] * stride_ak
    b_steps = ks[:, None] * stride_bk
    a_upper_ptrs = a_ptr + upper[:, None] * stride_am + a_steps
    a_lower_ptrs = a_ptr + lower[:, None] * stride_am + a_steps
    b_left_ptrs = b_ptr + left[None, :] * stride_bn + b_steps
    b_right_ptrs = b_ptr + right[None, :] * stride_bn + b_steps

    acc_ul = tl.zeros((HALF_M, HALF_N), dtype=tl.float32)
    acc_ur = tl.zeros((HALF_M, HALF_N), dtype=tl.float32)
    acc_ll = tl.zeros((HALF_M, HALF_N), dtype=tl.float32)
    acc_lr = tl.zeros((HALF_M, HALF_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_k = ks[None, :] < K - k
        b_k = ks[:, None] < K - k
        a_upper = tl.load(a_upper_ptrs, mask=(upper[:, None] < M) & a_k, other=0.0)
        a_lower = tl.load(a_lower_ptrs, mask=(lower[:, None] < M) & a_k, other=0.0)
        b_left = tl.load(b_left_ptrs, mask=b_k & (left[None, :] < N), other=0.0)
        b_right = tl.load(b_right_ptrs, mask=b_k & (right[None, :] < N), other=0.0)
        acc_ul = tl.dot(a_upper, b_left, acc_ul, input_precision="ieee")
        acc_ur = tl.dot(a_upper, b_right, acc_ur, input_precision="ieee")
        acc_ll = tl.dot(a_lower, b_left, acc_ll, input_precision="ieee")
        acc_lr = tl.dot(a_lower, b_right, acc_lr, input_precision="ieee")
        a_upper_ptrs += BLOCK_K * stride_ak
        a_lower_ptrs += BLOCK_K * stride_ak
        b_left_ptrs += BLOCK_K * stride_bk
        b_right_ptrs += BLOCK_K * stride_bk

    finish(acc_ul, c_ptr, bias_ptr, upper, left, M, N, stride_cm, stride_cn, BIAS_RELU)
    finish(acc_ur, c_ptr, bias_ptr, upper, right, M, N, stride_cm, stride_cn, BIAS_RELU)
    finish(acc_ll, c_ptr, bias_ptr, lower, left, M, N, stride_cm, stride_cn, BIAS_RELU)
    finish(acc_lr, c_ptr, bias_ptr, lower, right, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, 2 * meta["HALF_M"]) * triton.cdiv(N, 2 * meta["HALF_N"]),)  # noqa: E731
    quarters_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
