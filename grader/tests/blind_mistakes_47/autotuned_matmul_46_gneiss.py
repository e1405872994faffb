# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | First: in `matmul_kernel`, `b_tail = b_cols + (whole + lanes)[:, None] * stride_bk` counts blocks, not elements; it should be `(whole * BLOCK_K + lanes)`, and it shows in both functions where K is above 64 and no multiple of 64. Second: `_launch` computes `out.T = b.T @ a.T` for a transposed `out`, but the kernel still adds `bias[None, :]`; there the bias belongs to the rows, `bias[:, None]` by `rows` and M (a flag is missing). It shows in `matmul_bias_relu` with a transposed `out` alone, for any K.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

# Tile, stages and warps. BLOCK_K is 64 in all: 128 bytes of a row in 16 bits.
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for m, n, s, w in ((128, 128, 4, 8), (128, 128, 3, 8), (128, 64, 4, 8), (64, 128, 4, 4), (32, 32, 3, 4))
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile - group * GROUP_M * tiles_n
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); whole blocks of K without a mask along K, then what is left of it."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * stride_am
    b_cols = b_ptr + cols.to(tl.int64)[None, :] * stride_bn

    whole = K // BLOCK_K
    rest = K % BLOCK_K
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(whole):
        ks = step * BLOCK_K + lanes
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists, other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if rest > 0:
        a_tail = a_rows + (whole * BLOCK_K + lanes)[None, :] * stride_ak
        b_tail = b_cols + (whole + lanes)[:, None] * stride_bk
        a = tl.load(a_tail, mask=row_exists & (lanes[None, :] < rest), other=0.0)
        b = tl.load(b_tail, mask=(lanes[:, None] < rest) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    # A transposed result is stored in whole lines if its transpose is computed: c.T = b.T @ a.T.
    if out.stride(0) == 1 and out.stride(1) != 1:
        left, right, c = b.T, a.T, out.T
    else:
        left, right, c = a, b, out
    M, K = left.shape
    N = right.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        left, right, c, bias, M, N, K,
        left.stride(0), left.stride(1), right.stride(0), right.stride(1), c.stride(0), c.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
