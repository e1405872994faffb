# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `c = tl.reshape(acc, (BM, BN))` in `matmul_kernel`: acc holds the transposed tile (BN, BM), and reshape keeps the order in memory instead of exchanging the axes. It should be `tl.trans(acc)`. Both functions, every case but 1 x 1: tiles are transposed (BM = BN) or scrambled.
"""A matrix product that sums B^T A^T, so that a tile has its columns of C along the first axis."""

import torch
import triton
import triton.language as tl

# A weight is mostly stored as (N, K). Its rows are then the first operand of the product, and load well.
CONFIGS = [
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 128, "BN": 64, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=4, num_warps=4),
]
GROUP = tl.constexpr(8)


def fitting(configs, named_args, **kwargs):
    """One small tile for fp32, which has no tensor cores, and no tiles larger than the result."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    kept = []
    for config in configs:
        if config.kwargs["BM"] <= named_args["M"] and config.kwargs["BN"] <= named_args["N"]:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def corner(M, N, BM: tl.constexpr, BN: tl.constexpr):
    """First row and column of the tile of this program; GROUP columns of tiles are walked row by row."""
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BM)
    group = pid // (GROUP * tiles_m)
    width = tl.minimum(tl.cdiv(N, BN) - group * GROUP, GROUP)
    pid = pid % (GROUP * tiles_m)
    return pid // width * BM, (group * GROUP + pid % width) * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of c = a @ b, or of relu(a @ b + bias), summed as (b^T @ a^T)^T."""
    m, n = corner(M, N, BM, BN)
    i = (m + tl.arange(0, BM)).to(tl.int64)
    j = (n + tl.arange(0, BN)).to(tl.int64)
    k = tl.arange(0, BK)
    left = b_ptr + j[:, None] * stride_bn + k[None, :] * stride_bk
    right = a_ptr + k[:, None] * stride_ak + i[None, :] * stride_am

    acc = tl.zeros((BN, BM), dtype=tl.float32)
    tl.assume(K > 0)
    for done in range(0, K, BK):
        rest = K - done
        x = tl.load(left, mask=(j[:, None] < N) & (k[None, :] < rest), other=0.0)
        y = tl.load(right, mask=(k[:, None] < rest) & (i[None, :] < M), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        left += BK * stride_bk
        right += BK * stride_ak

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    c = tl.reshape(acc, (BM, BN)).to(c_ptr.dtype.element_ty)
    at = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(at, c, mask=(i[:, None] < M) & (j[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.size(0), a.size(1)
    N = b.size(1)
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
