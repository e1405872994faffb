# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel, the end: `c = acc.to(c_ptr.dtype.element_ty)` stands before the epilogue, so in matmul_bias_relu the sum is rounded to fp16 or bf16, and the bias is added in that dtype: two roundings instead of one. Shows only in matmul_bias_relu with fp16 and bf16 (surely in the exact cases); fp32 and matmul are right. Bias (as fp32) and ReLU should be applied to acc, and the conversion come last.
"""Lab 3. A tiled product whose tile shape Triton picks, plus the variant with bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
        pre_hook=pre_hook,
    )


SHAPES = (
    # rows, columns, step along K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 64, 3, 4),
)
CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    limit = min(named_args["M"], named_args["N"], 256)
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // across, tile % across, down, across, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def span(first, LENGTH: tl.constexpr):
    return (first + tl.arange(0, LENGTH)).to(tl.int64)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = span(m, BLOCK_M)
    cols = span(n, BLOCK_N)
    ks = span(0, BLOCK_K)
    a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    # int64, because b may have very long rows.
    hop = tl.full((), BLOCK_K, tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for done in range(0, K, BLOCK_K):
        left = K - done
        a = tl.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_at, mask=(ks[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += hop * stride_ak
        b_at += hop * stride_bk

    c = acc.to(c_ptr.dtype.element_ty)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        c = tl.maximum(c + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, c, mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
