# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `finish_kernel` the line `values += bias[None, None, :]` adds the bias to each of the PARTS partial sums before `tl.sum(values, axis=0)`, so it counts PARTS (2 or 8) times; it should be added to `total`, after the sum. matmul_bias_relu is wrong in all cases, matmul is right.
"""Matrix product in two launches: K is shared out among programs, then their parts are added and finished."""

import torch
import triton
import triton.language as tl


def _candidate(bm, bn, bk, stages, warps):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    _candidate(128, 256, 64, 3, 8),
    _candidate(256, 128, 64, 3, 8),
    _candidate(128, 128, 64, 4, 8),
    _candidate(128, 64, 64, 4, 4),
    _candidate(64, 128, 64, 4, 4),
    _candidate(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile, in groups of GROUP_M tile rows."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """parts[p] = a @ b over the p-th share of K, in fp32; a share without any k is 0."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    # A share is a whole number of blocks, so that only the end of K needs a mask.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS) * BLOCK_K
    start = part * share
    stop = tl.minimum(start + share, K)
    ks = start + tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (lanes[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(lanes[:, None] < K - k) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    base = parts_ptr + part.to(tl.int64) * M * N
    tl.store(base + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok)


@triton.jit
def finish_kernel(
    parts_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, with bias and ReLU where asked for."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(0)
    rows = ((pid // across) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = ((pid % across) * COLS + tl.arange(0, COLS)).to(tl.int64)
    part = tl.arange(0, PARTS).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    spots = part[:, None, None] * M * N + (rows[:, None] * N + cols[None, :])[None, :, :]
    values = tl.load(parts_ptr + spots, mask=inside[None, :, :], other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        values += bias[None, None, :]
    total = tl.sum(values, axis=0)
    if BIAS_RELU:
        total = tl.maximum(total, 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # Few tiles leave most of the GPU idle: then more programs share K.
    parts = 8 if M * N <= 512 * 512 else 2
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        parts,
    )
    parts_kernel[grid](
        a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), PARTS=parts
    )  # fmt: skip
    rows, cols = 8, 64
    finish_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        sums, bias, out, M, N, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, PARTS=parts, ROWS=rows, COLS=cols,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums; two launches add in a fixed order, so each run gives the same bits."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second launch has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
