# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel` the masks along K are `ks[None, :] < K` and `ks[:, None] < K`; they should compare with the end of the program's share, `tl.minimum(begin + share, K)`. Where K is split (K >= 256 and M * N <= 512 * 512) and a share, cdiv(K, 4), is no multiple of BLOCK_K = 64, the last block of a share counts the first products of the next share again: both functions are wrong for K = 257, 384 and similar, and right for shorter K, for large results, and for K = 4096.
"""Matrix product tile by tile, autotuned; a small result with a long K is shared among more programs."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(32, 64, 64, 3, 4),
    _config(32, 32, 64, 3, 4),
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
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def epilogue(sums, bias_ptr, cols, N):
    """relu(sums + bias) in fp32; cols are the columns of the tile."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + bias[None, :], 0.0)


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, sums_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or with SPLIT > 1 what a share of K adds to the sums, which are (M, N), fp32, contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * stride_am
    b_cols = b_ptr + cols.to(tl.int64)[None, :] * stride_bn

    begin = tl.program_id(axis=1) * share
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, begin + share, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if SPLIT > 1:
        at = rows.to(tl.int64)[:, None] * N + cols[None, :]
        tl.atomic_add(sums_ptr + at, acc, mask=row_exists & col_exists, sem="relaxed")
    else:
        if BIAS_RELU:
            acc = epilogue(acc, bias_ptr, cols, N)
        at = rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
        tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """c from the sums of all shares, with bias and ReLU where asked."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(axis=0)
    rows = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    far = rows.to(tl.int64)[:, None]
    sums = tl.load(sums_ptr + far * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        sums = epilogue(sums, bias_ptr, cols, N)
    at = far * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptr + at, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # A result of few tiles leaves most of the GPU idle: four programs share each tile's K.
    split = 4 if K >= 256 and M * N <= 512 * 512 else 1
    sums = torch.zeros((M, N) if split > 1 else (1, 1), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), split)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, sums, M, N, K, triton.cdiv(K, split),
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, SPLIT=split,
    )  # fmt: skip
    if split > 1:
        finish_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 64),)](
            sums, out, bias, M, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK_M=32, BLOCK_N=64
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
