# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel with PARTS = 2, loop along K: the loads are masked with K - k, not with stop - k, so where the share of the first program is no multiple of BLOCK_K its last block reaches into the share of the second, and these columns of K count twice; shows for M * N below 2^20 and cdiv(K, 2) no multiple of BLOCK_K, unless K is 1. (2) triton.autotune of matmul_kernel lacks reset_to_zero=["c_ptr"]: for PARTS = 2 each trial of the autotuner adds to the same fp32 sums by tl.atomic_add, so the first call with new sizes is too large where more than one config is tried (M and N at least 64 and M * N below 2^20).
"""Matrix product in which two programs share the K of a tile where the result is small.

They add their sums to an fp32 matrix of zeros with atomics, and a second kernel takes it to the result.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    width = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * width)
    index = tile % (GROUP_M * width)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + index % height) * BLOCK_M, index // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of the result for PARTS == 1, else a share of its fp32 sums."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    far_rows = rows.to(tl.int64)[:, None]
    far_cols = cols.to(tl.int64)[None, :]
    row_in = rows[:, None] < M
    col_in = cols[None, :] < N

    share = tl.cdiv(K, PARTS)
    start = tl.program_id(axis=1) * share
    stop = tl.minimum(start + share, K)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + far_rows * stride_am + (start + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (start + ks)[:, None] * stride_bk + far_cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        x = tl.load(a_ptrs, mask=row_in & (ks[None, :] < K - k), other=0.0)
        y = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & col_in, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + far_rows * stride_cm + far_cols * stride_cn
    if PARTS == 1:
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_in & col_in)
    else:
        tl.atomic_add(c_ptrs, acc, mask=row_in & col_in, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """A piece of one row: from fp32 sums to the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(sums_ptr + row * N + cols, mask=cols < N, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        values = tl.maximum(values + bias, 0.0)
    to = c_ptr + row * stride_cm + cols.to(tl.int64) * stride_cn
    tl.store(to, values.to(c_ptr.dtype.element_ty), mask=cols < N)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # A large result has tiles enough for the whole GPU.
    shared = M * N < 1024 * 1024
    parts = 2 if shared else 1
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32) if shared else out
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        parts,
    )
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, *a.stride(), *b.stride(), *sums.stride(),
        BIAS_RELU=bias_relu, PARTS=parts,
    )  # fmt: skip
    if shared:
        finish_kernel[(M, triton.cdiv(N, 512))](
            sums, out, bias, N, *out.stride(), BIAS_RELU=bias_relu, BLOCK=512
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), summed in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
