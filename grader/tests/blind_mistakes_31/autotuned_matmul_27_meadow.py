# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Split-K product: several programs add to one fp32 tile of a workspace, a second kernel has the epilogue."""

import torch
import triton
import triton.language as tl

SHAPES = (
    # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
    (32, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for m, n, k, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and none beyond 64 for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    within = tile % (GROUP_M * across)
    height = tl.minimum(down - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["work_ptr"],
)
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """work += a @ b over one part of K; work is (M, N), fp32, contiguous, and holds zeros at first."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    inside_m = rows[:, None] < M
    inside_n = cols[None, :] < N

    # Whole blocks of K for each part: only the last block of all needs a mask.
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)
    begin = tl.program_id(axis=1) * steps * BLOCK_K
    end = tl.minimum(begin + steps * BLOCK_K, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=inside_m & (ks[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=inside_n & (ks[:, None] < K),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    spots = work_ptr + rows[:, None] * N + cols[None, :]
    tl.atomic_add(spots, acc, mask=inside_m & inside_n, sem="relaxed")


@triton.jit
def finish_kernel(
    work_ptr, bias_ptr, c_ptr, N, total, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """c = work, or relu(work + bias), rounded to the dtype of c; a program has BLOCK numbers in a row."""
    flat = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = flat < total
    rows = flat // N
    cols = flat % N
    sums = tl.load(work_ptr + flat, mask=inside, other=0.0)
    if BIAS_RELU:
        sums += tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        sums = tl.maximum(sums, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _parts(M, N, K):
    """Among how many programs to split K: enough to fill a GPU, at least 128 of K for each."""
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    return max(1, min(8, 132 // tiles, triton.cdiv(K, 128)))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    work = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    parts = _parts(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    partial_kernel[grid](
        a, b, work, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SPLIT=parts
    )
    finish_kernel[(triton.cdiv(M * N, 1024),)](
        work, bias, out, N, M * N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
