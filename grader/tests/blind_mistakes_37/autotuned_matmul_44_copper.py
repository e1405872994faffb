# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) place returns the first column as `rank // height * BLOCK_M`; it should be `* BLOCK_N`. With a config whose BLOCK_M and BLOCK_N differ (also the last one, 32 x 64, to which small results fall back) tiles start too far left or right so columns stay unwritten where N exceeds (tiles along N - 1) * BLOCK_M + BLOCK_N (every N above 96 with 32 x 64), or in gaps where BLOCK_M is larger; right with one column of tiles or 128 x 128; both functions. (2) In the epilogue of matmul_kernel the bias is loaded from `bias_ptr + across`, and across is `cols * stride_cn`, the offset in c; the bias is contiguous, so it should be `bias_ptr + cols`. Shows in matmul_bias_relu where the column stride of out is not 1 (out transposed, or every second column of a wider matrix): wrong bias, read past its end.
"""Matrix product by tiles, with an optional epilogue of bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, stages, warps."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 6}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(32, 64, 32, 3, 4),
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
    columns = tl.cdiv(N, BLOCK_N)
    start = tile // (columns * GROUP_M) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - start, GROUP_M)
    rank = tile % (columns * GROUP_M)
    return (start + rank % height) * BLOCK_M, rank // height * BLOCK_M


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    has_row = rows < M
    has_col = cols < N
    # Where the tile lies in c.
    down = rows * stride_cm
    across = cols * stride_cn

    a_block = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_block = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for done in range(0, K, BLOCK_K):
        has_k = depth < K - done
        a = tl.load(a_block, mask=has_row[:, None] & has_k[None, :], other=0.0)
        b = tl.load(b_block, mask=has_k[:, None] & has_col[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block += BLOCK_K * stride_ak
        b_block += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + across, mask=has_col, other=0.0).to(tl.float32)
        acc += bias[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)

    result = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + down[:, None] + across[None, :], result, mask=has_row[:, None] & has_col[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    am, ak = a.stride()
    bk, bn = b.stride()
    cm, cn = out.stride()
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, am, ak, bk, bn, cm, cn, BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; K may not be 0."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
