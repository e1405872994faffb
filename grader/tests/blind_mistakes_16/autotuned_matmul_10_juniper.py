# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) The loop of TODO 4 makes K // BLOCK_K steps, so the products past the last full block of K are missing; it should be tl.cdiv(K, BLOCK_K). (2) TODO 5 loads the bias at tl.arange(0, BLOCK_N) without the tile's first column n, so all tiles of columns get the first BLOCK_N values of the bias; it should be bias_ptr + cols with mask cols < N.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# BEGIN TODO 1: the tile shapes the autotuner tries (about 8 lines)
CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 32, 4, 4),
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
    n_cols = tl.cdiv(N, BLOCK_N)
    n_rows = tl.cdiv(M, BLOCK_M)
    size = GROUP_M * n_cols
    first = (tile // size) * GROUP_M
    height = tl.minimum(n_rows - first, GROUP_M)
    within = tile % size
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N
    # END TODO 2


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    # BEGIN TODO 3: pointers to the first tiles, and the masks of rows and columns (about 7 lines)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_rows = a_ptr + (rows * stride_am)[:, None]
    b_cols = b_ptr + (cols * stride_bn)[None, :]
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    # END TODO 3
    # BEGIN TODO 4: sum the products of the tiles along K, in fp32 (about 8 lines)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(K // BLOCK_K):
        k = ks + step * BLOCK_K
        a = tl.load(a_rows + (k * stride_ak)[None, :], mask=row_mask & (k < K)[None, :], other=0.0)
        b = tl.load(b_cols + (k * stride_bk)[:, None], mask=(k < K)[:, None] & col_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    # END TODO 4
    if BIAS_RELU:
        # BEGIN TODO 5: the epilogue of matmul_bias_relu (about 2 lines)
        lanes = tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + lanes, mask=lanes < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
        # END TODO 5
    # BEGIN TODO 6: store the tile (about 2 lines)
    c_ptrs = c_ptr + (rows * stride_cm)[:, None] + (cols * stride_cn)[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)
    # END TODO 6


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    # BEGIN TODO 7: one program for each tile; the grid depends on the config (about 3 lines)
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    # END TODO 7
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
