# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | without `out`, _result returns the first N columns of a matrix whose rows are padded to a multiple of 16 elements: where N is not a multiple of 16 (and M > 1) the returned (M, N) matrix is not contiguous, in both functions; the values are right. README: the function returns a new contiguous (M, N) matrix. Should be torch.empty((M, N), ...)
"""Matrix product with grouped tiles; bias and ReLU are applied to the fp32 sums of a tile."""

import torch
import triton
import triton.language as tl

ALIGNED = 16


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    limit = min(named_args["M"], named_args["N"])
    if named_args["c_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    group, within = tile // (GROUP_M * wide), tile % (GROUP_M * wide)
    first = group * GROUP_M
    height = tl.minimum(high - first, GROUP_M)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def add_bias_and_clamp(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, 8)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    tl.assume(K > 0)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (ks[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks[:, None] < K) & (cols[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
        ks += BLOCK_K
    if BIAS_RELU:
        acc = add_bias_and_clamp(acc, bias_ptr, cols, N)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def _result(a, b):
    """A matrix for the result whose rows begin at aligned addresses, so that each row is stored in wide pieces."""
    M, N = a.shape[0], b.shape[1]
    width = triton.cdiv(N, ALIGNED) * ALIGNED
    return torch.empty((M, width), device=a.device, dtype=a.dtype)[:, :N]


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = _result(a, b)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, into `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), into `out` where one is given."""
    return _launch(a, b, bias, out, bias_relu=True)
