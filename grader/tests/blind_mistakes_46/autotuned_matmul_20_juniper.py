# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `_launch`, `parts = torch.empty((count, M, N), device=a.device, dtype=a.dtype)` rounds the partial sums to 16 bits; it should be `dtype=torch.float32`. Shows in fp16 and bf16 where K > 64 and M * N < 2^20 (exact cases), and for matmul_bias_relu also with a single part (rounded before the bias). (2) In `total_kernel`, `total = tl.maximum(total, 0.0) + bias[None, :]` should be `tl.maximum(total + bias[None, :], 0.0)`. Shows in all cases of `matmul_bias_relu`, fp32 too.
"""Matrix product in two kernels: consecutive parts of K one beside the other, then their sum and the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, 64 x 64 for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """parts[p] = a[:, those k] @ b[those k, :], where each part has as many whole steps along K."""
    part = tl.program_id(axis=0) % PARTS
    m, n = place(tl.program_id(axis=0) // PARTS, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS)
    begin = part * steps * BLOCK_K
    end = tl.minimum(begin + steps * BLOCK_K, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + (begin + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (begin + ks)[:, None] * stride_bk + cols[None, :] * stride_bn
    has_row, has_col = rows[:, None] < M, cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=has_row & (ks[None, :] < end - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < end - k) & has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    to = parts_ptr + (part.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(to, acc.to(parts_ptr.dtype.element_ty), mask=has_row & has_col)


@triton.jit
def total_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    PARTS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts in fp32, with the epilogue."""
    across = tl.cdiv(N, WIDTH)
    tile = tl.program_id(axis=0)
    rows = (tile // across).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
    cols = (tile % across).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    total = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        at = (rows[:, None] + part * M) * N + cols[None, :]
        total += tl.load(parts_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0) + bias[None, :]
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _parts(M, N, K):
    """Several programs share K where a result is small and K long enough."""
    if M * N >= 1024 * 1024 or K <= 64:
        return 1
    return 2 if K <= 256 else 4


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    count = _parts(M, N, K)
    parts = torch.empty((count, M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (count * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    parts_kernel[grid](a, b, parts, M, N, K, *a.stride(), *b.stride(), PARTS=count)
    height, width = 16, 128
    total_kernel[(triton.cdiv(M, height) * triton.cdiv(N, width),)](
        parts, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, PARTS=count, HEIGHT=height, WIDTH=width
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, into `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
