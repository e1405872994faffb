# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) in matmul_kernel the last, partial block of K replaces the sum of the whole blocks: `acc = tl.dot(a, b, input_precision="ieee")` should be `acc = tl.dot(a, b, acc, input_precision="ieee")`; shows in both functions where K > BLOCK_K and K is no multiple of BLOCK_K. (2) in finish the ReLU looks at the sum before the bias is added: `tl.where(acc > 0.0, acc + bias[None, :], 0.0)` should be `tl.maximum(acc + bias[None, :], 0.0)`; shows in every case of matmul_bias_relu, where the sum and the sum with bias differ in sign.
"""Matrix product, autotuned: whole blocks of K first, then what is left of K; with bias and ReLU on request."""

import torch
import triton
import triton.language as tl


def _config(tile, num_stages, num_warps):
    block_m, block_n, block_k = tile
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config((256, 128, 64), 3, 8),
    _config((128, 256, 64), 3, 8),
    _config((128, 128, 64), 3, 8),
    _config((64, 64, 64), 3, 4),
    _config((64, 32, 32), 4, 4),
    _config((32, 32, 32), 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """No tile beyond the result; for fp32, which has no tensor cores, none beyond 64."""
    limit = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    fits = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    if not fits:
        return configs[-1:]
    return fits


@triton.jit
def place(tile, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and first column of a tile: row by row."""
    per_row = tl.cdiv(N, BLOCK_N)
    return tile // per_row * BLOCK_M, tile % per_row * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """Bias and ReLU, in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.where(acc > 0.0, acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c = a @ b, or of relu(a @ b + bias)."""
    m, n = place(tl.program_id(axis=0), N, BLOCK_M, BLOCK_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K)
    is_row = rows[:, None] < M
    is_col = cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K * BLOCK_K
    for k in range(0, whole, BLOCK_K):
        ks = (k + lanes).to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=is_row, other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=is_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if whole < K:
        ks = (whole + lanes).to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=is_row & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=is_col & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, input_precision="ieee")

    if BIAS_RELU:
        acc = finish(acc, bias_ptr, cols, N)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=is_row & is_col)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; the result goes to `out` where it is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
