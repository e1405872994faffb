# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel: each of the SPLIT programs sums K // SPLIT numbers, so for K no multiple of 4 (small results, split K) the last ones are dropped; it must be tl.cdiv(K, SPLIT). (2) matmul: a new out is fp32 for all inputs; it must have the dtype of a.
import torch
import triton
import triton.language as tl


def _config(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """small tiles for fp32 and for small results"""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(axis=1)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    # this program sums k from low to high
    size = K // SPLIT
    low = part * size
    high = min(K, low + size)
    ks = low + tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, high - low, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < high - k), other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < high - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part.to(tl.int64) * M * N + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def sum_parts(parts_ptr, c_ptr, M, N, stride_cm, stride_cn, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """c = sum over the parts, rounded once"""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for s in tl.static_range(SPLIT):
        total += tl.load(parts_ptr + (row + s * tl.cast(M, tl.int64)) * N + cols, mask=cols < N, other=0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=cols < N)


def _grid(M, N, split):
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), split)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=torch.float32)
    # few tiles and a long K: share K among SPLIT programs, each with a plane of its own
    split = 4 if triton.cdiv(M, 64) * triton.cdiv(N, 64) <= 64 else 1
    if split == 1:
        matmul_kernel[_grid(M, N, 1)](
            a, b, out, a, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=False, SPLIT=1
        )
        return out
    parts = torch.empty((split, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[_grid(M, N, split)](
        a, b, parts, a, M, N, K, *a.stride(), *b.stride(), N, 1, BIAS_RELU=False, SPLIT=split
    )
    sum_parts[(M, triton.cdiv(N, 1024))](parts, out, M, N, *out.stride(), SPLIT=split, BLOCK=1024)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[_grid(M, N, 1)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=True, SPLIT=1
    )
    return out
