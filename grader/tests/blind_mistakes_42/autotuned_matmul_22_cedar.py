# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Splits K among 4 or 8 programs by interleaved blocks where there are few tiles, keeps fp32 parts in a workspace, and adds them in a second launch with `tl.reduce` and its own combine function; the kernel that runs last has the epilogue.
"""Matrix product; where tiles are few, every SPLIT-th block of K goes to another program."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def plus(x, y):
    return x + y


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def blocks_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    SPLIT: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, split): blocks split, split + SPLIT, split + 2 SPLIT, ... of K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(1)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = split * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + i[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + j[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # For split s the first SPLIT - 1 - s blocks of the last turn may lie past K: they are 0.
    for passed in range(0, K, SPLIT * BLOCK_K):
        left = K - passed
        a = tl.load(a_ptrs, mask=(i < M)[:, None] & (k < left)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(k < left)[:, None] & (j < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += SPLIT * BLOCK_K * stride_ak
        b_ptrs += SPLIT * BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + split * stride_cs + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(i < M)[:, None] & (j < N)[None, :])


@triton.jit
def join_kernel(
    parts_ptr, bias_ptr, c_ptr, count, N, stride_cm, stride_cn,
    SPLIT: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the SPLIT parts of each element, always in the same order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, SPLIT)
    inside = at < count
    parts = tl.load(parts_ptr + part[:, None] * count + at[None, :], mask=inside[None, :], other=0.0)
    total = tl.reduce(parts, 0, plus)
    row, column = at // N, at % N
    if BIAS_RELU:
        total += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    c_ptrs = c_ptr + row.to(tl.int64) * stride_cm + column.to(tl.int64) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _split(M, N, K):
    """A power of two: 8 or 4 programs a tile where there are fewer than 32 tiles and K is long enough."""
    if triton.cdiv(M, 64) * triton.cdiv(N, 64) >= 32 or K < 128:
        return 1
    return 8 if K >= 1024 else 4


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    split = _split(M, N, K)
    single = split == 1
    target = out if single else torch.empty((split, M, N), device=a.device, dtype=torch.float32)
    steps = (0, *out.stride()) if single else target.stride()
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        split,
    )
    blocks_kernel[grid](
        a, b, target, bias, M, N, K, *a.stride(), *b.stride(), *steps,
        SPLIT=split, BIAS_RELU=bias_relu and single,
    )  # fmt: skip
    if not single:
        join_kernel[(triton.cdiv(M * N, 256),)](
            target, bias, out, M * N, N, *out.stride(), SPLIT=split, BIAS_RELU=bias_relu, BLOCK=256
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the kernel that stores to out adds the bias."""
    return _launch(a, b, bias, out, bias_relu=True)
