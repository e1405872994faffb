# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Unusual: K is split among 4 or 8 programs where the result is small and K is at least 512 (each takes every PARTS-th block of K), into an fp32 workspace that a second kernel sums in a fixed order before bias and ReLU; no atomics. Elsewhere one launch with the epilogue in it.
"""Matrix product with K split among programs where the result has few tiles, with an optional bias and ReLU."""

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
    _config(64, 64, 32, 3, 4),
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
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def add_bias_relu(sums, bias_ptr, cols, N):
    """relu(sums + bias) in fp32; sums is a tile with the columns cols."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + bias[None, :], 0.0)


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K", "PARTS"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Part p of the sums of one tile: blocks p, p + PARTS, p + 2 PARTS, ... of K.

    Each part is stored to a matrix of its own, stride_cp elements behind the one before.
    """
    pid = tl.program_id(axis=0)
    part = pid % PARTS
    m, n = place(pid // PARTS, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = part * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K * PARTS):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * PARTS * stride_ak
        b_ptrs += BLOCK_K * PARTS * stride_bk
    if BIAS_RELU:
        acc = add_bias_relu(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def sum_parts_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_p, stride_m, stride_n, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """c = the sum of PARTS fp32 matrices in the order of their numbers, then bias and ReLU."""
    across = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(axis=0)
    rows = (pid // across).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (pid % across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    from_ptrs = parts_ptr + rows[:, None] * stride_m + cols[None, :] * stride_n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(PARTS):
        acc += tl.load(from_ptrs, mask=mask, other=0.0)
        from_ptrs += stride_p
    if BIAS_RELU:
        acc = add_bias_relu(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _parts(M, N, K):
    """How many programs share K: more than one only where the result is small and K is long."""
    if triton.cdiv(M, 64) * triton.cdiv(N, 64) > 32 or K < 512:
        return 1
    return 4 if K < 2048 else 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = _parts(M, N, K)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta) * parts,)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(), PARTS=1, BIAS_RELU=bias_relu
        )
        return out
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, *a.stride(), *b.stride(), *sums.stride(), PARTS=parts, BIAS_RELU=False
    )
    sum_parts_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 64),)](
        sums, out, bias, M, N, *sums.stride(), *out.stride(),
        PARTS=parts, BIAS_RELU=bias_relu, BLOCK_M=32, BLOCK_N=64,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
