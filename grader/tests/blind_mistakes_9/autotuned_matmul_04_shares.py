# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | Where K is split, the partial sums go to `parts = torch.empty((shares, M, N), ..., dtype=a.dtype)`; it must be torch.float32. In fp16 and bf16 each partial sum is rounded before they are added, or overflows in fp16; shows only in 16 bits and where K is split (K >= 512 and M * N at most 256 * 256), fp32 and all other sizes are right.
"""Matrix product, autotuned; for a long K and a small result, K is split among programs and a second kernel adds."""

import torch
import triton
import triton.language as tl

SHARES = 4


def tile(block_m, block_n, block_k, stages, warps):
    kwargs = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(kwargs, num_stages=stages, num_warps=warps)


CONFIGS = [tile(128, 256, 64, 3, 8), tile(128, 128, 64, 3, 8), tile(128, 64, 32, 4, 4), tile(64, 64, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Share s of c sums k from s * share to (s + 1) * share - 1; 2-D grid of tiles and shares."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    # Eight rows of tiles at a time, column by column.
    band = tl.program_id(0) // (8 * tiles_n)
    rest = tl.program_id(0) % (8 * tiles_n)
    high = min(8, tl.cdiv(M, BLOCK_M) - 8 * band)
    s = tl.program_id(1).to(tl.int64)
    rows = (8 * band + rest % high).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (rest // high).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = s * share
    end = tl.minimum(begin + share, K)
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    jump = tl.full((), BLOCK_K, tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(end - begin, BLOCK_K)):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < end), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < end) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        ks += BLOCK_K
        a_ptrs += jump * stride_ak
        b_ptrs += jump * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + s * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def add_shares_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < M * N
    row, col = (offs // N).to(tl.int64), (offs % N).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in tl.static_range(SHARES):
        total += tl.load(parts_ptr + s * M * N + offs, mask=inside, other=0.0).to(tl.float32)
    if BIAS_RELU:
        total += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    split = K >= 512 and M * N <= 256 * 256
    shares = SHARES if split else 1
    share = triton.cdiv(K, shares)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), shares)  # noqa: E731
    operands = (*a.stride(), *b.stride())
    if split:
        parts = torch.empty((shares, M, N), device=a.device, dtype=a.dtype)
        product_kernel[grid](a, b, parts, bias, M, N, K, share, *operands, *parts.stride(), BIAS_RELU=False)
        add_shares_kernel[(triton.cdiv(M * N, 1024),)](
            parts, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, SHARES=SHARES, BLOCK=1024
        )
    else:
        product_kernel[grid](a, b, out, bias, M, N, K, share, *operands, 0, *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, True)
