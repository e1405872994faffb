# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
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
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]
FOLD_ROWS = 16
FOLD_COLS = 64


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
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    first = (tile // (across * GROUP_M)) * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile - first * across
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def bias_relu_of(acc, bias_ptr, cols, N):
    """relu(acc + bias), in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of one of the PARTS slices of c: slice p is the product over the p-th share of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    # A share is a whole number of blocks; the last one ends at K, and may be shorter, or empty.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS) * BLOCK_K
    begin = part * share
    end = tl.minimum(begin + share, K)
    lane = tl.arange(0, BLOCK_K)
    ks = (begin + lane).to(tl.int64)
    a_tile = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    block_k = tl.full([], BLOCK_K, tl.int64)
    for k in range(begin, end, BLOCK_K):
        x = tl.load(a_tile, mask=row_ok & (lane[None, :] < end - k), other=0.0)
        y = tl.load(b_tile, mask=col_ok & (lane[:, None] < end - k), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_tile += block_k * stride_ak
        b_tile += block_k * stride_bk

    if BIAS_RELU:
        acc = bias_relu_of(acc, bias_ptr, cols, N)
    slice_ptr = c_ptr + part.to(tl.int64) * stride_cp
    c_tile = slice_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def fold_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = sum of the PARTS contiguous (M, N) slices, always in the same order, then the epilogue."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, COLS)
    rows = ((pid // across) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = ((pid % across) * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    where = part_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(PARTS):
        total += tl.load(where, mask=inside, other=0.0)
        where += M * N
    if BIAS_RELU:
        total = bias_relu_of(total, bias_ptr, cols, N)
    target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(target, total.to(c_ptr.dtype.element_ty), mask=inside)


def _parts(M, N, K):
    """Into how many shares K is split: one, unless few tiles would have to walk a long K."""
    return 1 if M * N > 512 * 512 else max(1, min(8, K // 512))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = _parts(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(), PARTS=1, BIAS_RELU=bias_relu
        )
        return out
    partial = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, partial, bias, M, N, K, *a.stride(), *b.stride(), *partial.stride(), PARTS=parts, BIAS_RELU=False
    )
    blocks = triton.cdiv(M, FOLD_ROWS) * triton.cdiv(N, FOLD_COLS)
    fold_kernel[(blocks,)](
        partial, out, bias, M, N, *out.stride(), PARTS=parts, BIAS_RELU=bias_relu, ROWS=FOLD_ROWS, COLS=FOLD_COLS
    )
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
