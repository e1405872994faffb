# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel, the load of `weights`: the block of pointers has the shape (BLOCK_N, BLOCK_K), but its mask `(ks[:, None] < left) & (cols[None, :] < N)` has the shape (BLOCK_K, BLOCK_N). BLOCK_K is 32 and BLOCK_N at least 64 in every config, so the shapes do not broadcast, and neither function compiles, in any case. Should be `(cols[:, None] < N) & (ks[None, :] < left)`.
"""Tiled matrix product with an optional bias + ReLU epilogue."""

import torch
import triton
import triton.language as tl

GROUP = 8


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    sizes = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=GROUP)
    return triton.Config(sizes, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 32, num_stages=4, num_warps=8),
    _config(256, 128, 32, num_stages=4, num_warps=8),
    _config(128, 128, 32, num_stages=4, num_warps=8),
    _config(64, 128, 32, num_stages=5, num_warps=4),
    _config(32, 64, 32, num_stages=4, num_warps=4),
    _config(64, 64, 32, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Only tiles that are no larger than the result; fp32 gets small ones."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    largest = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= largest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    wide = tl.cdiv(N, BLOCK_N)
    band = tile // (wide * GROUP_M)
    offset = tile % (wide * GROUP_M)
    bands_above = band * GROUP_M
    tall = tl.minimum(tl.cdiv(M, BLOCK_M) - bands_above, GROUP_M)
    return (bands_above + offset % tall) * BLOCK_M, offset // tall * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c. Both operands are read with k along the second axis, b as rows of its transpose."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    step = tl.full((), BLOCK_K, tl.int64)

    inputs_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    weights_at = b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        inputs = tl.load(inputs_at, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        weights = tl.load(weights_at, mask=(ks[:, None] < left) & (cols[None, :] < N), other=0.0)
        total = tl.dot(inputs, tl.trans(weights), total, input_precision="ieee")
        inputs_at += step * stride_ak
        weights_at += step * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        total = tl.maximum(total + bias.to(tl.float32)[None, :], 0.0)

    inside = (rows[:, None] < M) & (cols[None, :] < N)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; the result goes to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the result goes to `out` where one is given."""
    return _launch(a, b, bias, out, bias_relu=True)
