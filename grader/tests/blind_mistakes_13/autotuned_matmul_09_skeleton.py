# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | The bias is loaded at `bias_ptr + cols` with `cols = tl.arange(0, BLOCK_N)`, which is the first tile's bias for every tile; it should be `bias_ptr + n + cols` with the mask `n + cols < N`. The launch passes `1` as stride_cn, wrong where the columns of out are not adjacent; it should be `out.stride(1)`.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# BEGIN TODO 1: the tile shapes the autotuner tries (about 8 lines)
# A 128 x 256 tile of fp32 sums needs 8 warps: with 4 the registers do not suffice, and ptxas spills.
# Each config is compiled and timed once for each new size, so a short list saves time.
CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]
# END TODO 1


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    # BEGIN TODO 2: from the number of a tile to its place (about 6 lines)
    # GROUP_M rows of tiles are walked column by column: tiles in flight share what L2 holds of a and b.
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N
    # END TODO 2


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
    # BEGIN TODO 3: pointers to the first tiles, and the masks of rows and columns (about 7 lines)
    m = m.to(tl.int64)
    n = n.to(tl.int64)
    rows = tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    # the pointers of the program point at the corner of its strip, the blocks count from there
    a_tile = a_ptr + m * stride_am + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + n * stride_bn + cols.to(tl.int64)[None, :] * stride_bn + ks[:, None] * stride_bk
    row_exists = m + rows[:, None] < M
    col_exists = n + cols[None, :] < N
    # END TODO 3
    # BEGIN TODO 4: sum the products of the tiles along K, in fp32 (about 8 lines)
    # On a GPU tl.dot takes fp32 as TF32, which keeps 10 of 23 bits, unless input_precision says "ieee".
    # K is at least 1. After tl.assume(K > 0) the compiler keeps several products of the loop in flight.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_tile, mask=row_exists & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_tile, mask=col_exists & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    # END TODO 4
    if BIAS_RELU:
        # BEGIN TODO 5: the epilogue of matmul_bias_relu (about 2 lines)
        # Still in fp32: a sum rounded before the bias is added would be rounded twice.
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
        # END TODO 5
    # BEGIN TODO 6: store the tile (about 2 lines)
    c_tile = c_ptr + (m + rows)[:, None] * stride_cm + (n + cols)[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)
    # END TODO 6


# BONUS 8: the same with tensor descriptors, faster where the strides allow them (about 40 lines)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    # BONUS 9: and its launch (about 7 lines)
    # BEGIN TODO 7: one program for each tile; the grid depends on the config (about 3 lines)
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), 1,
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    # END TODO 7
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
