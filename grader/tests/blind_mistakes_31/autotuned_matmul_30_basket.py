# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | in the loop of matmul_kernel the next tiles are loaded into tile_a and tile_b before tl.dot has used the present ones, so the first block of K is never multiplied, and the last turn multiplies a block past K, which is all zeros. Wrong in every case of both functions (the sums are 0 where K <= BLOCK_K). tl.dot should come before the two loads, or the loads should go into other names that are assigned after it
"""Matrix product with tiles fetched one step ahead of the product that needs them."""

import torch
import triton
import triton.language as tl

# Tiles of c with the depth of a block of K, stages and warps.
SHAPES = [
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 32, 3, 4),
    (64, 64, 32, 3, 4),
]
CONFIGS = []
for _m, _n, _k, _stages, _warps in SHAPES:
    _sizes = {"BLOCK_M": _m, "BLOCK_N": _n, "BLOCK_K": _k, "GROUP_M": 8}
    CONFIGS.append(triton.Config(_sizes, num_stages=_stages, num_warps=_warps))


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
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def lines(ptr, numbers, count, ks, K, stride_line, stride_k):
    """Some lines along K of a matrix, rows of a or columns of b; 0 where there are none."""
    exists = (numbers[:, None] < count) & (ks[None, :] < K)
    return tl.load(ptr + numbers[:, None] * stride_line + ks[None, :] * stride_k, mask=exists, other=0.0)


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
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tile_a = lines(a_ptr, rows, M, ks, K, stride_am, stride_ak)
    tile_b = lines(b_ptr, cols, N, ks, K, stride_bn, stride_bk)
    for _ in range(0, K, BLOCK_K):
        ks += BLOCK_K
        tile_a = lines(a_ptr, rows, M, ks, K, stride_am, stride_ak)
        tile_b = lines(b_ptr, cols, N, ks, K, stride_bn, stride_bk)
        acc = tl.dot(tile_a, tl.trans(tile_b), acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


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
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
