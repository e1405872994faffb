# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel`, where K is split among SPLIT = 4 programs, the masks of a program's steps compare with K (`ks < K - k`) and not with the end of its own share, `min(start + share, K)`: if share = cdiv(K, 4) is no multiple of BLOCK_K (64), the last step of a program runs into the share of the next one, and those products are counted twice. Shows only where K is split, that is K >= 256 and fewer than 64 tiles of 64 x 64, and cdiv(K, 4) % 64 != 0 (as 100 x 300 x 257, 16 x 192 x 384), in both functions; K = 4096 and all that is not split are right.
"""Matrix product; a long K over few tiles is shared by several programs, and a second kernel finishes."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 3, 8),
    _config(256, 128, 3, 8),
    _config(128, 128, 3, 8),
    _config(64, 128, 4, 4),
    _config(128, 64, 4, 4),
    _config(64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


def splits_of(M, N, K):
    """How many programs share the sum of one tile: several only where the tiles alone leave most SMs idle."""
    few = triton.cdiv(M, 64) * triton.cdiv(N, 64) < 64
    return 4 if few and K >= 256 else 1


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["c_ptr"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or with SPLIT > 1 one share of its sum, added to the fp32 zeros at c_ptr."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    share = tl.cdiv(K, SPLIT)
    start = tl.program_id(axis=1) * share
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + (start + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (start + ks)[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, start + share, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    if SPLIT == 1:
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)
    else:
        tl.atomic_add(c_ptrs, acc, mask=row_ok & col_ok, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """From the fp32 sums to c, with the epilogue."""
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < M * N
    row = (at // N).to(tl.int64)
    col = (at % N).to(tl.int64)
    value = tl.load(sums_ptr + at, mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        value = tl.maximum(value + bias, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, value.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    split = splits_of(M, N, K)
    target = out if split == 1 else torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), split)](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), target.stride(0), target.stride(1),
        BIAS_RELU=bias_relu, SPLIT=split,
    )  # fmt: skip
    if split > 1:
        finish_kernel[(triton.cdiv(M * N, 1024),)](
            target, bias, out, M, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=1024
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
