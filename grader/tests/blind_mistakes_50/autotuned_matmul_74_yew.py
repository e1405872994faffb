# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `product_kernel` masks a share of K with `ks[None, :] < K` and `ks[:, None] < K` instead of `< end`: where K is split (at most 32 tiles of 64 x 64 and K > 128) and the share is no multiple of BLOCK_K, e.g. K = 257, 200 or 150, elements at the begin of the next share are summed twice. (2) `add_kernel`: `row * stride_cm + col * stride_cn` is int32, it should be `row.to(tl.int64)` and `col.to(tl.int64)`: where K is split and rows or columns of out lie beyond 2^31 elements, it stores elsewhere (seen alone with e.g. K = 256).
"""Matrix product, autotuned; where few tiles meet a long K, several programs share K and a second kernel adds."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]
ADD_BLOCK = 512


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of the sums over one share of K; c is the result itself, or one fp32 matrix for each share."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    s = tl.program_id(1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    begin = s * share
    end = tl.minimum(begin + share, K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + s.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def add_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the shares in order, then bias and ReLU."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < M * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in tl.static_range(SPLITS):
        total += tl.load(parts_ptr + s * (M * N) + index, mask=inside, other=0.0)
    row = index // N
    col = index % N
    if BIAS_RELU:
        total += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _splits(M, N, K):
    """How many programs share K: more than one only where the tiles alone leave most of the GPU idle."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    return min(8, triton.cdiv(K, 128)) if tiles <= 32 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = _splits(M, N, K)
    share = triton.cdiv(K, splits)
    if splits > 1:
        sums = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
        strides = sums.stride()
    else:
        sums, strides = out, (0, out.stride(0), out.stride(1))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    product_kernel[grid](
        a, b, sums, bias, M, N, K, share,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), *strides,
        BIAS_RELU=bias_relu and splits == 1,
    )  # fmt: skip
    if splits > 1:
        add_kernel[(triton.cdiv(M * N, ADD_BLOCK),)](
            sums, out, bias, M, N, out.stride(0), out.stride(1),
            SPLITS=splits, BIAS_RELU=bias_relu, BLOCK=ADD_BLOCK,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
