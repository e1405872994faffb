# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the two half tiles become one by `tl.reshape(tl.join(left, right), (BLOCK_M, BLOCK_N))`; join puts its new axis last, so columns of the halves alternate (left 0, right 0, left 1, right 1 ...), and only column 0 of each tile, and its last column where it exists, are in their place. It should be `tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (BLOCK_M, BLOCK_N))`.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N is at least 32: a program works on two halves of its tile, and tl.dot wants 16 columns or more.
CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(128, 64, 64, 3, 4),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def b_half(b_ptr, ks, cols, K, N, stride_bk, stride_bn):
    """One half of the tile of b, 0 where it lies outside."""
    where = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    return tl.load(where, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    The tile is summed as two halves side by side: one tile of a in shared memory feeds two smaller products.
    """
    HALF: tl.constexpr = BLOCK_N // 2
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols_left = (n + tl.arange(0, HALF)).to(tl.int64)
    cols_right = cols_left + HALF
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows[:, None] < M

    left = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + lanes
        a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        a = tl.load(a_at, mask=row_ok & (ks[None, :] < K), other=0.0)
        b_left = b_half(b_ptr, ks, cols_left, K, N, stride_bk, stride_bn)
        b_right = b_half(b_ptr, ks, cols_right, K, N, stride_bk, stride_bn)
        left = tl.dot(a, b_left, left, input_precision="ieee")
        right = tl.dot(a, b_right, right, input_precision="ieee")

    # Both halves in one tile, for one bias, one ReLU and one store.
    acc = tl.reshape(tl.join(left, right), (BLOCK_M, BLOCK_N))
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_ok & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
