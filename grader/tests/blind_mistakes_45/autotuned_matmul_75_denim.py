# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `odd = start(bias_ptr, cols, N, BIAS_RELU, BLOCK_M, BLOCK_N)` in `matmul_kernel`: the second chain of sums must start from zeros; as it stands `even + odd` holds the bias twice. Shows in `matmul_bias_relu` in every case (also with one block along K); `matmul` is right.
"""Autotuned matrix product with two chains of sums, for the even and the odd blocks along K."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """A step along K takes two blocks of BLOCK_K, each with its own sums: a tile needs twice the registers."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 3, 8),
    _config(64, 128, 32, 3, 8),
    _config(64, 64, 32, 2, 4),
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
    first = (tile // (GROUP_M * tiles_n)) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def start(bias_ptr, cols, N, BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """What fp32 sums begin with: the bias of their column, or 0."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        sums += bias.to(tl.float32)[None, :]
    return sums


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    rows64 = rows.to(tl.int64)
    cols64 = cols.to(tl.int64)
    a_ptrs = a_ptr + rows64[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols64[None, :] * stride_bn
    a_step = BLOCK_K * stride_ak
    b_step = BLOCK_K * stride_bk

    tl.assume(K > 0)
    even = start(bias_ptr, cols, N, BIAS_RELU, BLOCK_M, BLOCK_N)
    odd = start(bias_ptr, cols, N, BIAS_RELU, BLOCK_M, BLOCK_N)
    for k in range(0, K, 2 * BLOCK_K):
        a0 = tl.load(a_ptrs, mask=row_mask & (ks < K - k)[None, :], other=0.0)
        b0 = tl.load(b_ptrs, mask=(ks < K - k)[:, None] & col_mask, other=0.0)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        a_ptrs += a_step
        b_ptrs += b_step
        a1 = tl.load(a_ptrs, mask=row_mask & (ks < K - k - BLOCK_K)[None, :], other=0.0)
        b1 = tl.load(b_ptrs, mask=(ks < K - k - BLOCK_K)[:, None] & col_mask, other=0.0)
        odd = tl.dot(a1, b1, odd, input_precision="ieee")
        a_ptrs += a_step
        b_ptrs += b_step

    acc = even + odd
    if BIAS_RELU:
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rows64[:, None] * stride_cm + cols64[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
