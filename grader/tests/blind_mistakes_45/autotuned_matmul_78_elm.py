# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | In `_launch`, `a, b, out = b.T, a.T, out.T` rebinds `out`, and `return out` then returns the transposed view, an (N, M) tensor, and not the `out` that was given. The numbers in memory are right. Shows in both functions where `out` is given with stride(0) < stride(1) (a transposed out); it should keep the given tensor under another name and return that.
"""Matrix product; for a result that is stored by columns it computes c^T = b^T a^T, so that stores stay wide."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // in_group
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    within = tile - group * in_group
    return (group * GROUP_M + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K", "BIAS_BY_ROW"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BIAS_BY_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A tile of c, which may be the transposed result: then the bias has one value for each row."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_mask = rows < M
    col_mask = cols < N
    long_rows = rows.to(tl.int64)[:, None]
    long_cols = cols.to(tl.int64)[None, :]
    a_ptrs = a_ptr + long_rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + long_cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        k_mask = ks < K - k
        a = tl.load(a_ptrs, mask=row_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & col_mask[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        if BIAS_BY_ROW:
            bias = tl.load(bias_ptr + rows, mask=row_mask, other=0.0).to(tl.float32)
            acc += bias[:, None]
        else:
            bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
            acc += bias[None, :]
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + long_rows * stride_cm + long_cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    by_columns = out.stride(0) < out.stride(1)
    if by_columns:
        # Views: no data moves.
        a, b, out = b.T, a.T, out.T
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias_relu, BIAS_BY_ROW=by_columns,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides, those of `out` included."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), any strides, those of `out` included; bias is contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
