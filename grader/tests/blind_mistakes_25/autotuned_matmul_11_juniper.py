# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Without out=, _launch allocates an (N, M) matrix and returns its transposed view `dest.T`: the values are right, but the result is not contiguous (strides (1, M)), although the README asks for a new contiguous (M, N) matrix. It should be `out = torch.empty((M, N), ...)`, and its view `out.T` for the kernel.
"""Matrix product, autotuned, with bias and ReLU in the epilogue.

The kernel multiplies left (M, K) by right (K, N) and adds one bias to each ROW, as in W x + bias. The host therefore
calls it with left = b.T and right = a.T; transposed views are free. M and N of the kernel are those of its own operands.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of the result."""
    wide = tl.cdiv(N, BLOCK_N)
    full = GROUP_M * wide
    first = (tile // full) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % full
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    left_ptr, right_ptr, dest_ptr, bias_ptr, M, N, K,
    stride_lm, stride_lk, stride_rk, stride_rn, stride_dm, stride_dn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """dest = left @ right, or relu(left @ right + bias as a column)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    left_rows = left_ptr + rows[:, None] * stride_lm
    right_cols = right_ptr + cols[None, :] * stride_rn

    # First the whole blocks, where every lane along K exists.
    whole = K // BLOCK_K * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, whole, BLOCK_K):
        at = k + lanes
        left = tl.load(left_rows + at[None, :] * stride_lk, mask=row_mask, other=0.0)
        right = tl.load(right_cols + at[:, None] * stride_rk, mask=col_mask, other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    # Then what remains, if anything does.
    if whole < K:
        at = whole + lanes
        left = tl.load(left_rows + at[None, :] * stride_lk, mask=row_mask & (at[None, :] < K), other=0.0)
        right = tl.load(right_cols + at[:, None] * stride_rk, mask=col_mask & (at[:, None] < K), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + rows, mask=rows < M, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    dest = dest_ptr + rows[:, None] * stride_dm + cols[None, :] * stride_dn
    tl.store(dest, acc.to(dest_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    left, right = b.T, a.T
    M, K = left.shape
    N = right.shape[1]
    # What the kernel stores is the transposed result.
    if out is None:
        dest = torch.empty((M, N), device=a.device, dtype=a.dtype)
    else:
        dest = out.T
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        left, right, dest, bias, M, N, K,
        left.stride(0), left.stride(1), right.stride(0), right.stride(1), dest.stride(0), dest.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return dest.T if out is None else out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
