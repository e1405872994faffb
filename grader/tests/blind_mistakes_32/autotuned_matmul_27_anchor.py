# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product that splits K among programs where the result has few tiles.

Without a split the kernel finishes its tiles itself. With one, its programs add their sums to a matrix of fp32
zeros, and a second kernel turns that into the result.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 4, 4),
    _config(32, 32, 32, 4, 2),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = tiles_n * GROUP_M
    group = tile // per_group
    above = group * GROUP_M
    height = min(GROUP_M, tiles_m - above)
    rest = tile % per_group
    return (above + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.jit
def add_bias_and_clamp(sums, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + bias[None, :], 0.0)


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K"], reset_to_zero=["c_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)  # fmt: skip
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """SPLIT = 1: c is the result. Else c has fp32 zeros, and each program adds the sum over its share of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    long_rows = rows.to(tl.int64)[:, None]
    long_cols = cols.to(tl.int64)[None, :]

    # Shares are multiples of BLOCK_K: no step belongs to two of them.
    share = tl.cdiv(tl.cdiv(K, SPLIT), BLOCK_K) * BLOCK_K
    begin = tl.program_id(axis=1) * share
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(begin, min(begin + share, K), BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        long_ks = ks.to(tl.int64)
        a_ptrs = a_ptr + long_rows * stride_am + long_ks[None, :] * stride_ak
        b_ptrs = b_ptr + long_ks[:, None] * stride_bk + long_cols * stride_bn
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    c_ptrs = c_ptr + long_rows * stride_cm + long_cols * stride_cn
    there = (rows[:, None] < M) & (cols[None, :] < N)
    if SPLIT == 1:
        if BIAS_RELU:
            acc = add_bias_and_clamp(acc, bias_ptr, cols, N)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=there)
    else:
        tl.atomic_add(c_ptrs, acc, mask=there, sem="relaxed")


@triton.jit
def finish_kernel(
    sum_ptr, c_ptr, bias_ptr, M, N, stride_sm, stride_sn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """c = the fp32 sums, rounded, after bias and ReLU if they are wanted."""
    across = tl.cdiv(N, WIDTH)
    pid = tl.program_id(axis=0)
    rows = pid // across * HEIGHT + tl.arange(0, HEIGHT)
    cols = pid % across * WIDTH + tl.arange(0, WIDTH)
    long_rows = rows.to(tl.int64)[:, None]
    long_cols = cols.to(tl.int64)[None, :]
    there = (rows[:, None] < M) & (cols[None, :] < N)
    sums = tl.load(sum_ptr + long_rows * stride_sm + long_cols * stride_sn, mask=there, other=0.0)
    if BIAS_RELU:
        sums = add_bias_and_clamp(sums, bias_ptr, cols, N)
    c_ptrs = c_ptr + long_rows * stride_cm + long_cols * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=there)


def _split(M, N, K):
    """How many programs share the K of one tile: more than one only for long sums and few tiles."""
    few = triton.cdiv(M, 64) * triton.cdiv(N, 64) < 64
    return max(1, min(8, K // 128)) if few else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    split = _split(M, N, K)
    target = out if split == 1 else torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), split)](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), target.stride(0), target.stride(1),
        BIAS_RELU=bias_relu, SPLIT=split,
    )  # fmt: skip
    if split > 1:
        finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
            target, out, bias, M, N, target.stride(0), target.stride(1), out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, HEIGHT=16, WIDTH=128,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel that runs has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
