# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product with K shared among programs, which add to fp32 sums; a second kernel finishes them."""

import torch
import triton
import triton.language as tl

ROWS_AT_ONCE = 8
COLUMNS_AT_ONCE = 256


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(m, n, k, stages, warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 4, 4),
        (128, 64, 64, 4, 4),
        (64, 64, 32, 4, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the sums; none above 64 for fp32, which has no tensor cores."""
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


# Every trial of the autotuner adds to the same sums, so each must find them cleared.
@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_sm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Adds a share of K to one tile of the sums: axis 0 counts tiles, axis 1 shares."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]

    # A share is a whole number of steps; the last ones may have fewer, or none.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(1)) * BLOCK_K
    begin = tl.program_id(1) * share
    end = tl.minimum(begin + share, K)

    lanes = begin + tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows * stride_am + lanes[None, :] * stride_ak
    b_at = b_ptr + lanes[:, None] * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        left = end - k
        x = tl.load(a_at, mask=(rows < M) & (tl.arange(0, BLOCK_K)[None, :] < left), other=0.0)
        y = tl.load(b_at, mask=(tl.arange(0, BLOCK_K)[:, None] < left) & (cols < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk

    tl.atomic_add(sum_ptr + rows * stride_sm + cols, acc, mask=(rows < M) & (cols < N), sem="relaxed")


@triton.jit
def finish_kernel(
    sum_ptr, c_ptr, bias_ptr, M, N, stride_sm, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """Bias and ReLU on the complete fp32 sums, one rounding, and the store by the strides of c."""
    wide = tl.cdiv(N, TILE_N)
    rows = (tl.program_id(0) // wide * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)[:, None]
    cols = (tl.program_id(0) % wide * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)[None, :]
    exists = (rows < M) & (cols < N)
    value = tl.load(sum_ptr + rows * stride_sm + cols, mask=exists, other=0.0)
    if BIAS_RELU:
        value += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        value = tl.maximum(value, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, value.to(c_ptr.dtype.element_ty), mask=exists)


def _shares(K):
    """Into how many shares K is split: long sums are worth a few more programs."""
    return max(1, min(8, K // 512))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    shares = _shares(K)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), shares)](
        a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), sums.stride(0)
    )
    pieces = triton.cdiv(M, ROWS_AT_ONCE) * triton.cdiv(N, COLUMNS_AT_ONCE)
    finish_kernel[(pieces,)](
        sums, out, bias, M, N, sums.stride(0), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, TILE_M=ROWS_AT_ONCE, TILE_N=COLUMNS_AT_ONCE,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype and any strides; the sums are fp32 and rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
