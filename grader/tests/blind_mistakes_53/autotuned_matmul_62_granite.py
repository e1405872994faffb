# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `share_kernel`, `here = k + tl.arange(0, BLOCK_K) < K` masks with the end of K where it should with the end of the program's share, `< stop`. Where K is split (K at least 1024, fewer than 64 tiles of 64 x 64) and `share = cdiv(K, splits)` is no multiple of BLOCK_K, the last step of each share but the last also adds the first products of the next share, which are then counted twice: for example M = N = 24, K = 4000 (share 572), or K = 1030 (share 515). K = 4096 (share 512) and all shorter K are right.
"""Matrix product, autotuned. Where the result has few tiles, K is shared among programs, and a second kernel adds."""

import torch
import triton
import triton.language as tl

MOST_SPLITS = 8
SHORTEST = 512  # products that one share of K has at least


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile - first * tiles_n
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def share_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Plane s of c gets the products of the s-th share of K; with one share, c is the result itself."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(1)
    start = split * share
    stop = tl.minimum(start + share, K)
    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    ks = start + tl.arange(0, BLOCK_K)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(start, stop, BLOCK_K):
        here = k + tl.arange(0, BLOCK_K) < K
        a = tl.load(a_ptrs, mask=row_mask & here[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=here[:, None] & col_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + split.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


@triton.jit
def add_kernel(
    planes_ptr, out_ptr, bias_ptr, M, N, stride_ps, stride_pm, stride_pn, stride_om, stride_on,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The sum of the planes, in the order of K, then the epilogue."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    rows = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    plane = planes_ptr + rows[:, None] * stride_pm + cols[None, :] * stride_pn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in tl.static_range(SPLITS):
        acc += tl.load(plane, mask=inside, other=0.0)
        plane += stride_ps
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    target = out_ptr + rows[:, None] * stride_om + cols[None, :] * stride_on
    tl.store(target, acc.to(out_ptr.dtype.element_ty), mask=inside)


def _splits(M, N, K):
    """Among how many programs the K of one tile is shared."""
    if triton.cdiv(M, 64) * triton.cdiv(N, 64) >= 64:
        return 1
    return max(1, min(MOST_SPLITS, K // SHORTEST))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    splits = _splits(M, N, K)
    share = triton.cdiv(K, splits)
    if splits > 1:
        target = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
        strides = target.stride()
    else:
        target = out
        strides = (0, out.stride(0), out.stride(1))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    share_kernel[grid](
        a, b, target, bias, M, N, K, share, a.stride(0), a.stride(1), b.stride(0), b.stride(1), *strides,
        BIAS_RELU=bias_relu and splits == 1,
    )  # fmt: skip
    if splits > 1:
        add_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
            target, out, bias, M, N, *strides, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, SPLITS=splits, BLOCK_M=16, BLOCK_N=64,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the epilogue in the last kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
