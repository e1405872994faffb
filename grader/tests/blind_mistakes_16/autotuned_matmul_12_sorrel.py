# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | _launch replaces an out that is not contiguous by a new tensor, fills that and returns it: the numbers returned are right, but a padded or transposed out stays unwritten and is not what is returned. A new tensor should be made only where out is None.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import itertools

import torch
import triton
import triton.language as tl

# All pairs of these heights and widths, but for the largest: it spills.
CONFIGS = [
    triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": 64 if bm * bn > 4096 else 32, "GROUP_M": 8},
        num_stages=3,
        num_warps=8 if bm * bn >= 128 * 128 else 4,
    )
    for bm, bn in itertools.product((256, 128, 64), (256, 128, 64))
    if bm * bn < 256 * 256
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    wide = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * wide)
    within = tile - group * (GROUP_M * wide)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    row = group * GROUP_M + within % height
    column = within // height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    # Rows and columns that do not exist wrap around: what they give is not stored.
    a_rows = a_ptr + (i % M) * stride_am
    b_cols = b_ptr + (j % N) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        p = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_rows + p[None, :] * stride_ak, mask=p[None, :] < K, other=0.0)
        b = tl.load(b_cols + p[:, None] * stride_bk, mask=p[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0, acc, 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None or not out.is_contiguous():
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,)."""
    return _launch(a, b, bias, out, bias_relu=True)
