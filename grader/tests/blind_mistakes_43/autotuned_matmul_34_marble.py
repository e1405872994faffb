# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `_launch`, `planes = a.new_empty((parts, M, N))` has the dtype of a, so the partial sums of the parts of K are rounded to 16 bits before they are added; it should be `dtype=torch.float32`. Shows for fp16 and bf16 where K is split (M * N <= 512 * 512 and K >= 128), above all in the exact cases (128, 128, 128) and (129, 127, 200) of both functions; fp32 and unsplit products are right.
"""Matrix product whose K is split among programs where the result is small; no atomics, so runs give equal bits."""

import torch
import triton
import triton.language as tl

SPLIT = 4
# Up to this many elements the tiles alone are too few for the multiprocessors of a large GPU.
SMALL = 512 * 512


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; 64 x 64 for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def rectify(sums, bias_ptr, cols, N):
    """relu(sums + bias) for sums in fp32, whose last axis has the columns `cols`."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + bias, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def part_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    stride_cs, stride_cm, stride_cn, PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) sums one of PARTS stretches of K for one tile, and stores it in plane `part` of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    # Whole blocks for each part; the last parts may be shorter, or empty.
    stretch = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS) * BLOCK_K
    begin = part * stretch
    end = tl.minimum(begin + stretch, K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + (begin + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (begin + ks)[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = rectify(acc, bias_ptr, cols[None, :], N)
    c_ptrs = c_ptr + part * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def join_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c is the sum of the planes, always in the same order; with the epilogue, where asked for."""
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < M * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(part_ptr + part * M * N + i, mask=inside, other=0.0).to(tl.float32)
    rows = (i // N).to(tl.int64)
    cols = (i % N).to(tl.int64)
    if BIAS_RELU:
        total = rectify(total, bias_ptr, cols, N)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    parts = SPLIT if M * N <= SMALL and K >= 128 else 1
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    if parts == 1:
        part_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(), PARTS=1, BIAS_RELU=bias_relu
        )
        return out
    planes = a.new_empty((parts, M, N))
    part_kernel[grid](
        a, b, planes, bias, M, N, K, *a.stride(), *b.stride(), *planes.stride(), PARTS=parts, BIAS_RELU=False
    )
    block = 1024
    join_kernel[(triton.cdiv(M * N, block),)](
        planes, out, bias, M, N, *out.stride(), PARTS=parts, BIAS_RELU=bias_relu, BLOCK=block
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
