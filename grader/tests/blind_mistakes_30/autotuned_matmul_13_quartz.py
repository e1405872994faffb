# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue.

Where c is small and K long, K is split: each part is summed by programs of its own into fp32 scratch, and a
second kernel adds the parts in a fixed order, with bias and ReLU.
"""

import torch
import triton
import triton.language as tl

LONG_K = 512
MOST_PARTS = 8
SUM_BLOCK = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, part_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_part, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c from part_k numbers along K: program (tile, part)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    begin = part * part_k
    end = tl.minimum(begin + part_k, K)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = begin.to(tl.int64) + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    a_step = tl.cast(stride_ak, tl.int64) * BLOCK_K
    b_step = tl.cast(stride_bk, tl.int64) * BLOCK_K
    lanes = tl.arange(0, BLOCK_K)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N

    tl.assume(begin < end)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_exists & (lanes[None, :] < end - k), other=0.0)
        b = tl.load(b_ptrs, mask=(lanes[:, None] < end - k) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += a_step
        b_ptrs += b_step

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part * stride_part + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def add_parts_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, parts, stride_part, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c from the sums of the parts of K, which lie one (M, N) matrix after the other."""
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = at < M * N
    row = at // N
    col = at - row * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(0, parts):
        total += tl.load(parts_ptr + part * stride_part + at, mask=exists, other=0.0)
    if BIAS_RELU:
        total += tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _split(M, N, K):
    """In how many parts K is summed, and how long they are, a multiple of every BLOCK_K."""
    if triton.cdiv(M, 64) * triton.cdiv(N, 64) >= 64 or K <= LONG_K:
        return 1, K
    parts = min(MOST_PARTS, triton.cdiv(K, LONG_K))
    part_k = triton.cdiv(triton.cdiv(K, parts), 64) * 64
    return triton.cdiv(K, part_k), part_k


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    parts, part_k = _split(M, N, K)
    grid = lambda meta: (tiles(meta), parts)  # noqa: E731
    operands = (*a.stride(), *b.stride())
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, part_k, *operands, 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    scratch = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, scratch, bias, M, N, K, part_k, *operands, M * N, N, 1, BIAS_RELU=False
    )
    add_parts_kernel[(triton.cdiv(M * N, SUM_BLOCK),)](
        scratch, out, bias, M, N, parts, M * N, *out.stride(), BIAS_RELU=bias_relu, BLOCK=SUM_BLOCK
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
