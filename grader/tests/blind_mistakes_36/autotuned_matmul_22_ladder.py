# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel: `first = tl.program_id(1) * steps` counts steps of BLOCK_K but is used as an element of K, so the slices of K begin at 0, steps, 2*steps, 3*steps instead of multiples of steps*BLOCK_K; the slices overlap, most of K is summed several times and the end is missing; wrong in every case but K = 1; should be tl.program_id(1) * steps * BLOCK_K
"""Matrix product with K split among programs: fp32 partial sums first, then a second kernel that adds them."""

import torch
import triton
import triton.language as tl

SLICES = 4
FINISH_M, FINISH_N = 16, 128


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    height = tl.minimum(down - group * GROUP_M, GROUP_M)
    inside = tile % (GROUP_M * across)
    return (group * GROUP_M + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_ps, stride_pm, SLICES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, s) stores the sums of slice s of K for one tile."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    lanes = tl.arange(0, BLOCK_K)

    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SLICES)
    first = tl.program_id(1) * steps
    last = tl.minimum(first + steps * BLOCK_K, K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(first, last, BLOCK_K):
        ks = k + lanes
        x = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=row_ok & (ks[None, :] < last),
            other=0.0,
        )
        y = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks[:, None] < last) & col_ok,
            other=0.0,
        )
        acc = tl.dot(x, y, acc, input_precision="ieee")

    # The partial sums are contiguous: columns lie side by side.
    base = part_ptr + tl.program_id(1).to(tl.int64) * stride_ps
    tl.store(base + rows[:, None] * stride_pm + cols[None, :], acc, mask=row_ok & col_ok)


@triton.jit
def finish_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_ps, stride_pm, stride_cm, stride_cn,
    SLICES: tl.constexpr, BIAS_RELU: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """Adds the slices, then bias and ReLU, and rounds once."""
    across = tl.cdiv(N, TILE_N)
    tile = tl.program_id(0)
    rows = (tile // across * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    cols = (tile % across * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    ok = (rows[:, None] < M) & (cols[None, :] < N)
    source = part_ptr + rows[:, None] * stride_pm + cols[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(SLICES):
        total += tl.load(source, mask=ok, other=0.0)
        source += stride_ps
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(target, total.to(c_ptr.dtype.element_ty), mask=ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    part = torch.empty((SLICES, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), SLICES)](
        a, b, part, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), part.stride(0), part.stride(1),
        SLICES=SLICES,
    )  # fmt: skip
    finish_kernel[(triton.cdiv(M, FINISH_M) * triton.cdiv(N, FINISH_N),)](
        part, out, bias, M, N,
        part.stride(0), part.stride(1), out.stride(0), out.stride(1),
        SLICES=SLICES, BIAS_RELU=bias_relu, TILE_M=FINISH_M, TILE_N=FINISH_N, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
