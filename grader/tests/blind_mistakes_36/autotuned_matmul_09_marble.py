# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel` the corner of a tile is int64 (`m.to(tl.int64) * stride_am` and so on), but the offsets inside the tile are int32: `i * stride_am`, `j * stride_bn`, `i * stride_cm`, `j * stride_cn` with i, j = tl.arange wrap around where one stride is below 2^31 but stride * (row or column within the tile) reaches 2^31, as for 3 rows 2^30 elements apart in a or out. Shows only for rows of a, columns of b, rows or columns of out so far apart that 2^31 is passed inside one tile, in both functions and all dtypes; far matrices of ordinary pitch are right. i and j should be int64 too.
"""Matrix product tile by tile: scalar corners of tiles, and small blocks of offsets within."""

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
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(128, 64, 32, 4, 4),
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
    across = tl.cdiv(N, BLOCK_N)
    band = tile // (across * GROUP_M)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - band * GROUP_M, GROUP_M)
    within = tile % (across * GROUP_M)
    return (band * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = tl.arange(0, BLOCK_M)[:, None]
    j = tl.arange(0, BLOCK_N)[None, :]
    ks = tl.arange(0, BLOCK_K)
    rows_left = M - m
    cols_left = N - n

    # The corner of the tile first, in 64 bits.
    a_ptr += m.to(tl.int64) * stride_am
    b_ptr += n.to(tl.int64) * stride_bn
    c_ptr += m.to(tl.int64) * stride_cm + n.to(tl.int64) * stride_cn
    a_offsets = i * stride_am + ks[None, :] * stride_ak
    b_offsets = ks[:, None] * stride_bk + j * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + a_offsets, mask=(i < rows_left) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptr + b_offsets, mask=(ks[:, None] < K - k) & (j < cols_left), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptr += BLOCK_K * stride_ak
        b_ptr += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + n + j, mask=j < cols_left, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)

    result = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, result, mask=(i < rows_left) & (j < cols_left))


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
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
