# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `bias_relu`, `tl.load(bias_ptr + lane, ...)` loads the first BLOCK_N values of the bias for each tile; it should be `bias_ptr + cols`: `matmul_bias_relu` is wrong from the second column of tiles on, that is for N > BLOCK_N. (2) In `matmul_kernel`, `offsets = (rows[:, None] * stride_cm + cols[None, :] * stride_cn).to(tl.int64)` converts after the products, which wrap in int32; rows and columns should be int64 before they meet the strides: both functions store to wrong addresses where `out` reaches beyond 2^31 elements (strides that fit int32).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

# Sides of the tile and step along K, then stages and warps.
TILES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 256, 32, 4, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in TILES
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
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def walk(
    a_ptrs, b_ptrs, row_ok, col_ok, K, step_a, step_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sums of the products along K, from pointers to the first tiles of a and b."""
    ks = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        present = ks < K - k
        a = tl.load(a_ptrs, mask=row_ok & present[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & present[:, None], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs += step_a
        b_ptrs += step_b
    return sums


@triton.jit
def bias_relu(sums, bias_ptr, cols, N, BLOCK_N: tl.constexpr):
    """relu(sums + bias): one value of the bias for each column, in fp32."""
    lane = tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + lane, mask=cols < N, other=0.0)
    return tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)


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
    row_ok, col_ok = (rows < M)[:, None], (cols < N)[None, :]

    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    sums = walk(
        a_ptrs, b_ptrs, row_ok, col_ok, K, BLOCK_K * stride_ak, BLOCK_K * stride_bk,
        BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    if BIAS_RELU:
        sums = bias_relu(sums, bias_ptr, cols, N, BLOCK_N)

    offsets = (rows[:, None] * stride_cm + cols[None, :] * stride_cn).to(tl.int64)
    tl.store(c_ptr + offsets, sums.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
