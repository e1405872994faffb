# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel` the loads are masked by `ks < K` (`ks[None, :] < K`, `ks[:, None] < K`), they should be masked by `ks < stop`: the last step of a share runs into the next share, whose products are counted twice. Shows where K is shared (K > 192 and at most 64 tiles of 64 x 64) and the length of a share, cdiv(K, SHARES), is no multiple of 64, as K = 257, 200 or 384; K = 4096 and shorter K are right.
"""Matrix product that shares K among programs where the result alone has too few tiles for a GPU."""

import torch
import triton
import triton.language as tl

STEP_K = 64


def _config(block_m, block_n, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": STEP_K, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 256, 3, 8), _config(128, 128, 4, 8), _config(64, 128, 4, 4), _config(64, 64, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; the smallest for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def biased(sums, bias_ptr, cols, N):
    """relu(sums + bias), one bias for each column."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    SHARES: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or of one of its SHARES partial sums, which lie stride_cp apart."""
    pid = tl.program_id(axis=0)
    m, n = place(pid // SHARES, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    has_row, has_col = rows[:, None] < M, cols[None, :] < N

    # This program's share of K: from start up to stop.
    share = pid % SHARES
    length = tl.cdiv(K, SHARES)
    start = share * length
    stop = tl.minimum(start + length, K)
    ks = start + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(start, stop, BLOCK_K):
        a = tl.load(a_ptrs, mask=has_row & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
        ks += BLOCK_K

    if BIAS_RELU:
        acc = biased(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + share.to(tl.int64) * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


@triton.jit
def gather_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, SHARES: tl.constexpr, BIAS_RELU: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the partial sums, (SHARES, M, N) and contiguous, and finishes c."""
    across = tl.cdiv(N, WIDTH)
    rows = (tl.program_id(0) // across * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    cols = (tl.program_id(0) % across * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    sums = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for share in tl.static_range(SHARES):
        sums += tl.load(part_ptr + (rows[:, None] + share * M) * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        sums = biased(sums, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _shares(M, N, K):
    """How many programs share one tile: enough work in each, and no more programs than needed."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    if K <= 192 or tiles > 64:
        return 1
    return 4 if K <= 1024 else 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    shares = _shares(M, N, K)
    grid = lambda meta: (shares * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    operands = (*a.stride(), *b.stride())
    if shares == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *operands, 0, *out.stride(), SHARES=1, BIAS_RELU=bias_relu
        )  # fmt: skip
        return out
    part = torch.empty((shares, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, part, bias, M, N, K, *operands, *part.stride(), SHARES=shares, BIAS_RELU=False
    )  # fmt: skip
    gather_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        part, out, bias, M, N, *out.stride(), SHARES=shares, BIAS_RELU=bias_relu, HEIGHT=16, WIDTH=64
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; at most two launches, fp32 sums between them."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last launch has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
