# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product that turns the problem where out is column-major: out.T = b.T @ a.T, so stores stay coalesced.

The kernel walks along K from the end to the beginning, and visits tile columns forth and back (boustrophedon).
"""

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
    _config(128, 256, 32, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]

# What the epilogue adds: nothing, bias[column], or bias[row] (the turned problem).
NO_BIAS = 0
BIAS_OF_COLUMN = 1
BIAS_OF_ROW = 2


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c; odd groups are walked from right to left."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    row = first + within % height
    col = within // height
    col = tl.where(group % 2 == 1, tiles_n - 1 - col, col)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), with the bias along the rows (EPILOGUE 1) or down the columns (2)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows < M
    col_ok = cols < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    # The last block of K, the only one that may be partial, comes first.
    steps = tl.cdiv(K, BLOCK_K)
    ks = (steps - 1) * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for _ in range(0, steps):
        k_ok = ks < K
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=k_ok[:, None] & col_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        ks -= BLOCK_K

    if EPILOGUE == 1:
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    if EPILOGUE == 2:
        bias = tl.load(bias_ptr + rows, mask=row_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok[:, None] & col_ok[None, :],
    )


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)

    epilogue = BIAS_OF_COLUMN if bias_relu else NO_BIAS
    left, right, result = a, b, out
    if out.stride(0) < out.stride(1):
        # Views only, nothing is copied: rows of the turned problem are the columns of out.
        left, right, result = b.T, a.T, out.T
        epilogue = BIAS_OF_ROW if bias_relu else NO_BIAS

    (M, K), N = left.shape, right.shape[1]
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        left, right, result, bias, M, N, K,
        left.stride(0), left.stride(1), right.stride(0), right.stride(1), result.stride(0), result.stride(1),
        EPILOGUE=epilogue,
    )  # fmt: skip
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
