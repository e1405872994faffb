# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product tile by tile, autotuned. A small result with a long K is split along K and finished by a second kernel."""

import torch
import triton
import triton.language as tl

FINISH_BLOCK = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
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
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    within = tile % (GROUP_M * across)
    top = group * GROUP_M
    height = tl.minimum(down - top, GROUP_M)
    return (top + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of the product over one share of K, stored in the dtype of c at layer `split` of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(axis=1)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    lanes = tl.arange(0, BLOCK_K)

    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    begin = split * share
    end = tl.minimum(begin + share, K)

    first = begin.to(tl.int64) + lanes
    a_at = a_ptr + rows[:, None] * stride_am + first[None, :] * stride_ak
    b_at = b_ptr + first[:, None] * stride_bk + cols[None, :] * stride_bn
    a_step = BLOCK_K * tl.cast(stride_ak, tl.int64)
    b_step = BLOCK_K * tl.cast(stride_bk, tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_at, mask=row_exists & (lanes[None, :] < end - k), other=0.0)
        b = tl.load(b_at, mask=(lanes[:, None] < end - k) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += a_step
        b_at += b_step

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + split.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def finish_kernel(
    part_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the layers of the (SPLITS, M, N) partial sums in order, then bias and ReLU, then one rounding."""
    total = M * N
    flat = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = flat < total
    row = (flat // N).to(tl.int64)
    col = (flat % N).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for layer in tl.static_range(SPLITS):
        acc += tl.load(part_ptr + layer * total + flat, mask=inside, other=0.0)
    if BIAS_RELU:
        acc += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _splits(M, N, K):
    """How many programs share K: more than one only where the result is too small to fill the device."""
    return min(8, triton.cdiv(K, 512)) if M * N <= 256 * 256 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = _splits(M, N, K)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta), splits)  # noqa: E731
    if splits == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(),
            SPLITS=1, BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    parts = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, parts, bias, M, N, K, *a.stride(), *b.stride(), *parts.stride(),
        SPLITS=splits, BIAS_RELU=False,
    )  # fmt: skip
    finish_kernel[(triton.cdiv(M * N, FINISH_BLOCK),)](
        parts, bias, out, M, N, *out.stride(), SPLITS=splits, BIAS_RELU=bias_relu, BLOCK=FINISH_BLOCK
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
