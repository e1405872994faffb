# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | K is split into SPLITS = 4 slices that are added by atomics. (1) split_kernel masks both loads with K (`at < K`) instead of the end of its slice (`at < stop`): where cdiv(K, 4) is no multiple of BLOCK_K, the last block of a slice also takes the beginning of the next slice, which is counted twice or more (K = 1 is right). (2) finish_kernel, so only matmul_bias_relu: ReLU comes before the bias, `tl.maximum(total, 0.0) + bias` instead of `tl.maximum(total + bias, 0.0)`.
"""Matrix product with K split among programs, whose fp32 sums meet in a scratch matrix."""

import torch
import triton
import triton.language as tl

SPLITS = 4
FLAT = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 4, 4),
    _config(32, 32, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def split_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """sums, (M, N) in fp32 and zero before, gets the product of one slice of K added to one tile."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    length = tl.cdiv(K, SPLITS)
    start = tl.program_id(axis=1) * length
    stop = tl.minimum(start + length, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        at = k + ks
        inside = at < K
        a_ptrs = a_ptr + rows * stride_am + at[None, :] * stride_ak
        b_ptrs = b_ptr + at[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_ptrs, mask=(rows < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=inside[:, None] & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sums_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N), sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, FLAT: tl.constexpr
):
    """From the fp32 sums to c: the epilogue, and one rounding."""
    index = tl.program_id(axis=0).to(tl.int64) * FLAT + tl.arange(0, FLAT)
    row = index // N
    col = index % N
    exists = row < M
    total = tl.load(sums_ptr + index, mask=exists, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0) + bias
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        SPLITS,
    )
    split_kernel[grid](a, b, sums, M, N, K, *a.stride(), *b.stride(), SPLITS=SPLITS)
    finish_kernel[(triton.cdiv(M * N, FLAT),)](
        sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, FLAT=FLAT
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; the order of the additions, and so the last digits, may differ from run to run."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The same with bias and ReLU in the second kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
