# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `_run` computes c.T = b.T @ a.T where `out` is stored column by column, by `_launch(b.T, a.T, bias, out.T, bias_relu)`, but the kernel then still adds the bias by columns (`bias.to(tl.float32)[None, :]` in `epilogue`), which are the rows of `out`; there it should be added by rows, `[:, None]`, with the mask of rows. It shows in `matmul_bias_relu` only, where `out.stride(0) < out.stride(1)` (a transposed `out`): the values are wrong, and for M > N the bias is also read past its end. `matmul` is right.
"""Matrix product with autotuned tiles; the lanes of a store always lie along the closer axis of the result."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
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
    """First row and first column of one of the tiles of c, GROUP_M rows of tiles at a time."""
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    group = tile // (GROUP_M * wide)
    rest = tile % (GROUP_M * wide)
    here = min(high - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + rest % here) * BLOCK_M, (rest // here) * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """Bias of each column, then ReLU, in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    shifted = acc + bias.to(tl.float32)[None, :]
    return tl.where(shifted > 0.0, shifted, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptr += rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptr += ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptr, mask=row_ok & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptr, mask=(ks[:, None] < left) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptr += BLOCK_K * stride_ak
        b_ptr += BLOCK_K * stride_bk

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    where = rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptr + where, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip


def _run(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    if out.stride(0) < out.stride(1):
        # A result stored column by column is the transposed product stored row by row.
        _launch(b.T, a.T, bias, out.T, bias_relu)
    else:
        _launch(a, b, bias, out, bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _run(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _run(a, b, bias, out, bias_relu=True)
