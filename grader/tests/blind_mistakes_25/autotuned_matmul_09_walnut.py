# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In _launch, `share = K // parts` rounds down: where K is split (M * N at most 2^20, K at least 256) and is no multiple of the number of parts, as K = 257, the last K % parts columns of a and rows of b are never multiplied. It should be `triton.cdiv(K, parts)`.
"""Matrix product tile by tile, autotuned. Small results with a long K are cut along K and put together at the end."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    along_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * along_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The tile number program_id(0) of c, summed over part number program_id(1) of K.

    c is the result itself if there is one part, else fp32 with one (M, N) matrix for each part, stride_cp apart.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    begin = part * share
    end = tl.minimum(begin + share, K)

    rm = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    rn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    rk = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m = rm < M
    in_n = rn < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ka = (k + rk)[None, :]
        kb = (k + rk)[:, None]
        a = tl.load(a_ptr + rm * stride_am + ka * stride_ak, mask=in_m & (ka < end), other=0.0)
        b = tl.load(b_ptr + kb * stride_bk + rn * stride_bn, mask=in_n & (kb < end), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + rn, mask=in_n, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c = c_ptr + part.to(tl.int64) * stride_cp + rm * stride_cm + rn * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


@triton.jit
def join_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, parts, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Adds the partial sums, always in the same order, and applies the epilogue."""
    rm = (tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    rn = (tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    here = (rm < M) & (rn < N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for p in range(0, parts):
        total += tl.load(part_ptr + (p * M + rm) * N + rn, mask=here, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + rm * stride_cm + rn * stride_cn, total.to(c_ptr.dtype.element_ty), mask=here)


def _parts(M, N, K):
    """How many programs share one tile: several only where c has too few tiles to fill a card."""
    if M * N > 1024 * 1024:
        return 1
    return max(1, min(8, K // 128))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = _parts(M, N, K)
    share = K // parts
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731

    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, share, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out

    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, share, *a.stride(), *b.stride(), *sums.stride(), BIAS_RELU=False
    )
    join_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 128))](
        sums, out, bias, M, N, parts, *out.stride(), BIAS_RELU=bias_relu, BLOCK_M=16, BLOCK_N=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
