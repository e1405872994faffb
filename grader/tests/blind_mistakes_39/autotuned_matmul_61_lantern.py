# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel (so in both functions) the fp32 tile is stored in two halves, but the halves are cut with tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2))), which gives the even and the odd columns, and these are stored as the left and the right half of the tile: columns of each tile are shuffled, only its first and its last are in place. It shows in every case with N > 1. Should be tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
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
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def put(c_ptr, half, rows, cols, M, N, stride_cm, stride_cn):
    """Store one half of a tile, rounded to the dtype of c."""
    where = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(where, half.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    a is (M, K), b (K, N) and c (M, N), bf16, fp16 or fp32, all of one dtype, any strides; bias is (N,) like
    them, contiguous, and read where BIAS_RELU.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    # Whole steps need no mask along K; what is left over takes one masked step.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K
    for _ in range(0, whole):
        a = tl.load(a_ptrs, mask=row_ok, other=0.0)
        b = tl.load(b_ptrs, mask=col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tail = K - whole * BLOCK_K
    if tail > 0:
        a_end = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < tail), other=0.0)
        b_end = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < tail), other=0.0)
        acc = tl.dot(a_end, b_end, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    # Two stores of half a tile: fewer registers are needed for the converted values at one time.
    left, right = tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2)))
    left_cols = (n + tl.arange(0, BLOCK_N // 2)).to(tl.int64)
    put(c_ptr, left, rows, left_cols, M, N, stride_cm, stride_cn)
    put(c_ptr, right, rows, left_cols + BLOCK_N // 2, M, N, stride_cm, stride_cn)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
