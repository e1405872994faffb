# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | K is split among up to 16 programs where the result is small (whole steps a part, some parts may be empty), partial sums in a fp32 workspace without atomics; a second kernel adds them by `tl.reduce` with its own combine function `plus`, has the epilogue and stores by the strides of `out`.
"""Matrix product whose long sums are shared among programs: partial sums first, then one more kernel adds them up."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
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
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile - tile // in_group * in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def plus(x, y):
    return x + y


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or one of its PARTS partial sums; then c is (PARTS, M, N), fp32 and contiguous."""
    pid = tl.program_id(axis=0)
    part = pid % PARTS
    m, n = place(pid // PARTS, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    # Each part has a whole number of steps; the last parts may have fewer, or none.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS) * BLOCK_K
    begin = part * share
    end = tl.minimum(begin + share, K)
    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    ks = begin + tl.arange(0, BLOCK_K)
    a_at = a_ptr + (rows[:, None] * stride_am + ks[None, :] * stride_ak)
    b_at = b_ptr + (ks[:, None] * stride_bk + cols[None, :] * stride_bn)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        k_ok = tl.arange(0, BLOCK_K) < K - k
        a = tl.load(a_at, mask=row_ok & k_ok[None, :], other=0.0)
        b = tl.load(b_at, mask=k_ok[:, None] & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + (rows[:, None] * stride_cm + cols[None, :] * stride_cn)
    if PARTS > 1:
        c_at += part * (M * N)
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def sum_kernel(
    parts_ptr, c_ptr, bias_ptr, numel, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, with the epilogue; program i has BLOCK elements in the order of the rows."""
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, LANES)
    inside = at < numel
    parts = tl.load(
        parts_ptr + part[:, None] * numel + at[None, :], mask=(part < PARTS)[:, None] & inside[None, :], other=0.0
    )
    total = tl.reduce(parts, 0, plus)
    row = at // N
    col = at - row * N
    if BIAS_RELU:
        total = tl.maximum(total + tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32), 0.0)
    tl.store(
        c_ptr + row.to(tl.int64) * stride_cm + col.to(tl.int64) * stride_cn,
        total.to(c_ptr.dtype.element_ty),
        mask=inside,
    )


def _parts(M, N, K):
    """How many programs share the K of a tile: several only where a small result has long sums."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    return max(1, min(16, 96 // tiles, K // 128))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = _parts(M, N, K)
    if parts == 1:
        target, stride_m, stride_n = out, out.stride(0), out.stride(1)
    else:
        target, stride_m, stride_n = torch.empty((parts, M, N), device=a.device, dtype=torch.float32), N, 1
    grid = lambda meta: (parts * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), stride_m, stride_n,
        BIAS_RELU=bias_relu and parts == 1, PARTS=parts,
    )  # fmt: skip
    if parts > 1:
        block = 256
        sum_kernel[(triton.cdiv(M * N, block),)](
            target, out, bias, M * N, N, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, PARTS=parts, LANES=triton.next_power_of_2(parts), BLOCK=block, num_warps=4,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
