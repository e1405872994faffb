# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel computes the transposed tile, of shape (BLOCK_N, BLOCK_M), but adds the bias as bias[None, :], of shape (1, BLOCK_N): no config is square, so the shapes do not fit and matmul_bias_relu stops in every case with incompatible dimensions (matmul is right); should be bias[:, None]
"""Matrix product that computes its tiles transposed, c.T = b.T @ a.T, in bands of columns."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "BAND": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(64, 256, 32, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(32, 64, 64, 4, 4),
    _config(64, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and none of more than 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BAND: tl.constexpr):
    """First row and first column of a tile; a band of columns is walked row by row."""
    tall = tl.cdiv(M, BLOCK_M)
    wide = tl.cdiv(N, BLOCK_N)
    band = tile // (BAND * tall)
    left = band * BAND
    width = min(wide - left, BAND)
    within = tile % (BAND * tall)
    return (within // width) * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias): the columns of c go down, its rows go across."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, BAND)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    row_exists = (rows < M)[None, :]
    col_exists = (cols < N)[:, None]
    rows_64 = rows.to(tl.int64)[None, :]
    cols_64 = cols.to(tl.int64)[:, None]

    flipped = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        ks_64 = ks.to(tl.int64)
        b_t = tl.load(
            b_ptr + cols_64 * stride_bn + ks_64[None, :] * stride_bk,
            mask=col_exists & (ks < K)[None, :], other=0.0,
        )  # fmt: skip
        a_t = tl.load(
            a_ptr + ks_64[:, None] * stride_ak + rows_64 * stride_am,
            mask=(ks < K)[:, None] & row_exists, other=0.0,
        )  # fmt: skip
        flipped = tl.dot(b_t, a_t, flipped, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        flipped = tl.maximum(flipped + bias[None, :], 0.0)

    c_ptrs = c_ptr + cols_64 * stride_cn + rows_64 * stride_cm
    tl.store(c_ptrs, flipped.to(c_ptr.dtype.element_ty), mask=col_exists & row_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
