# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) place takes the height of a group from the tiles along N, tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP_M), instead of along M: shows in both functions wherever the numbers of tiles along M and N differ (unless both are at least GROUP_M in each group): whole tiles stay unwritten; it should be tl.cdiv(M, BLOCK_M) - first; (2) both kernels keep acc in the dtype of c and round each product of tl.dot to it, so 16-bit sums lose digits at every step along K: shows for fp16 (and bf16), not fp32, in both functions, also where the tiles are placed right (as 128 x 128 x 128); acc should be fp32, converted at the store only
"""Matrix product with a kernel of its own for b stored column by column."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
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
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_n - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """The epilogue and the store; rows is a column of numbers, cols a row of them."""
    result = acc.to(tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        result = tl.maximum(result + bias, 0.0)
    at = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(at, result.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def nn_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Tiles of b are loaded as they are multiplied, BLOCK_K x BLOCK_N."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows * stride_am + ks.to(tl.int64)[None, :] * stride_ak
    b_at = b_ptr + ks.to(tl.int64)[:, None] * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_at, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_at, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee").to(c_ptr.dtype.element_ty)
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def nt_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Tiles of b are loaded as they lie in memory, BLOCK_N x BLOCK_K, and transposed for the product."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    b_rows = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    ks = tl.arange(0, BLOCK_K)[None, :]
    a_at = a_ptr + rows * stride_am + ks.to(tl.int64) * stride_ak
    b_at = b_ptr + b_rows * stride_bn + ks.to(tl.int64) * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_at, mask=(rows < M) & (ks < K - k), other=0.0)
        b = tl.load(b_at, mask=(b_rows < N) & (ks < K - k), other=0.0)
        acc += tl.dot(a, tl.trans(b), input_precision="ieee").to(c_ptr.dtype.element_ty)
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    numbers = M, N, K, *a.stride(), *b.stride(), *out.stride()
    if b.stride(0) == 1:
        nt_kernel[tiles](a, b, out, bias, *numbers, BIAS_RELU=bias_relu)
    else:
        nn_kernel[tiles](a, b, out, bias, *numbers, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
