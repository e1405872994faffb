# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _launch allocates the partial sums as `torch.empty((splits, M, N), dtype=a.dtype)`: in fp16 and bf16 each share of K is rounded to 16 bits (or overflows) before the shares, and the bias, are added. Shows in fp16 and bf16 only, in both functions: matmul where K is split (K > 64), matmul_bias_relu always, because its sum is rounded before the bias; clearest where sums are exact. fp32 is right. The workspace should be torch.float32.
"""Matrix product with K split among programs: partial sums first, then one kernel that adds and finishes them."""

import torch
import triton
import triton.language as tl

FINISH_BLOCK = 1024
MOST_SPLITS = 4


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
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
    first = (tile // in_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, size, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """work[share] = a @ b over the columns of a of one share; one program for each tile and share."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    share = tl.program_id(axis=1)
    per_share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    begin = share * per_share
    end = min(K, begin + per_share)

    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=row_ok & (ks < end)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks < end)[:, None] & col_ok,
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    spots = share.to(tl.int64) * size + rows[:, None] * N + cols[None, :]
    tl.store(work_ptr + spots, acc, mask=row_ok & col_ok)


@triton.jit
def finish_kernel(
    work_ptr, c_ptr, bias_ptr, N, size, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of the shares, or relu of that and bias; program pid owns BLOCK elements of c."""
    spots = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = spots < size
    rows = spots // N
    cols = spots % N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for share in range(SPLITS):
        total += tl.load(work_ptr + spots, mask=inside, other=0.0).to(tl.float32)
        work_ptr += size
    if BIAS_RELU:
        total += tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = min(MOST_SPLITS, triton.cdiv(K, 64))
    size = out.numel()
    work = torch.empty((splits, M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), splits)](
        a, b, work, M, N, K, *a.stride(), *b.stride(), size, SPLITS=splits
    )
    finish_kernel[(triton.cdiv(size, FINISH_BLOCK),)](
        work, out, bias, N, size, *out.stride(), SPLITS=splits, BIAS_RELU=bias_relu, BLOCK=FINISH_BLOCK
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
