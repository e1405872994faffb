# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `steps = tl.cdiv(K, BLOCK_K) // SPLITS` in `product_kernel`: should be rounded up, `tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)`; the last blocks of K are missing where K is split and the number of blocks is no multiple of SPLITS (100 x 300 x 257, 65 x 40 x 129, 129 x 127 x 200, 3 x 70 x 150, in all dtypes). (2) `parts = torch.empty((splits, M, N), device=a.device, dtype=a.dtype)` in `_launch`: should be `torch.float32`; the partial sums are rounded to 16 bits before they are added and before the bias. Shows in fp16 and bf16 where K is split (K at least 128 and few tiles), most clearly in the bitwise cases (128 x 128 x 128), where the first one does not show. Both are in `matmul` and `matmul_bias_relu`.
"""Autotuned matrix product; where the result has few tiles, K is split and a second kernel adds the parts."""

import torch
import triton
import triton.language as tl

SIDE, MOST_SPLITS, PROGRAMS = 64, 8, 132
FINISH_BLOCK = 512

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (64, 64, 64, 3, 4),
        (64, 64, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


def _splits(M, N, K):
    """Programs that share K: as many as keep all SMs at work, with 64 numbers or more along K for each."""
    tiles = triton.cdiv(M, SIDE) * triton.cdiv(N, SIDE)
    return max(1, min(PROGRAMS // tiles, K // SIDE, MOST_SPLITS))


@triton.jit
def _add(x, y):
    return x + y


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or of one of the SPLITS parts of it, which lie one behind the other."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(1)
    rows = (m + tl.arange(0, BLOCK_M))[:, None]
    cols = (n + tl.arange(0, BLOCK_N))[None, :]
    ks = tl.arange(0, BLOCK_K)

    steps = tl.cdiv(K, BLOCK_K) // SPLITS
    begin = split * steps * BLOCK_K
    a_ptrs = a_ptr + rows.to(tl.int64) * stride_am + (begin + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (begin + ks)[:, None] * stride_bk + cols.to(tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, steps):
        left = K - begin - step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU and SPLITS == 1:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + rows.to(tl.int64) * stride_cm + cols.to(tl.int64) * stride_cn
    if SPLITS > 1:
        c_ptrs += split.to(tl.int64) * M * N
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def finish_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, SPLITS_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c from the sum of its parts, and the epilogue."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, SPLITS_BLOCK)
    exists = offs < M * N
    parts = tl.load(
        parts_ptr + part[:, None] * (M * N) + offs[None, :],
        mask=(part < SPLITS)[:, None] & exists[None, :], other=0.0,
    )  # fmt: skip
    acc = tl.reduce(parts.to(tl.float32), 0, _add)
    row = offs // N
    col = offs % N
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + row.to(tl.int64) * stride_cm + col.to(tl.int64) * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = _splits(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    if splits == 1:
        product_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu, SPLITS=1
        )
        return out
    parts = torch.empty((splits, M, N), device=a.device, dtype=a.dtype)
    product_kernel[grid](
        a, b, parts, bias, M, N, K, *a.stride(), *b.stride(), N, 1, BIAS_RELU=bias_relu, SPLITS=splits
    )
    finish_kernel[(triton.cdiv(M * N, FINISH_BLOCK),)](
        parts, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, SPLITS=splits,
        SPLITS_BLOCK=triton.next_power_of_2(splits), BLOCK=FINISH_BLOCK, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
