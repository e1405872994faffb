# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel takes two blocks of K per step for K // (2 * BLOCK_K) pairs, and then one single masked block for the rest (`if done < K`), although up to 2 * BLOCK_K - 1 columns of a may be left: where K % (2 * BLOCK_K) > BLOCK_K the elements of K after that block are missing. Both functions, e.g. K = 40 with BLOCK_K = 32, K = 200 or 96 with BLOCK_K = 64; other K are right. It should loop over the rest: for k in range(done, K, BLOCK_K).
"""Matrix product, two blocks of K at a time, autotuned, with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 32, 3, 8),
    _config(256, 128, 32, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
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
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = GROUP_M * (tile // in_group)
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    row = first + within % height
    column = within // height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)

    # Whole blocks need no mask along K.
    pairs = K // (2 * BLOCK_K)
    for i in range(pairs):
        k0 = (i * (2 * BLOCK_K) + tl.arange(0, BLOCK_K)).to(tl.int64)
        k1 = k0 + BLOCK_K
        a0 = tl.load(a_rows + k0[None, :] * stride_ak, mask=row_exists, other=0.0)
        b0 = tl.load(b_cols + k0[:, None] * stride_bk, mask=col_exists, other=0.0)
        a1 = tl.load(a_rows + k1[None, :] * stride_ak, mask=row_exists, other=0.0)
        b1 = tl.load(b_cols + k1[:, None] * stride_bk, mask=col_exists, other=0.0)
        acc = tl.dot(a0, b0, acc, input_precision="ieee")
        acc = tl.dot(a1, b1, acc, input_precision="ieee")

    # The rest of K.
    done = pairs * (2 * BLOCK_K)
    if done < K:
        ks = (done + tl.arange(0, BLOCK_K)).to(tl.int64)
        a2 = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists & (ks[None, :] < K), other=0.0)
        b2 = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & col_exists, other=0.0)
        acc = tl.dot(a2, b2, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
