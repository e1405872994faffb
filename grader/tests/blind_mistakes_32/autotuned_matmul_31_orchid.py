# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product that shares out steps instead of tiles ("stream-K").

All steps along K of all tiles form one long line, and each program takes an equal piece of it. A piece may begin
and end in the middle of a tile, so what it has of a tile is added to a matrix of fp32 zeros. A second kernel
turns the sums into the result.
"""

import torch
import triton
import triton.language as tl

STRIP = 8
PIECE = 256


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    top = tile // (GROUP_M * tiles_n) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    within = tile - top * tiles_n
    return (top + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def some_steps(
    a_ptr, b_ptr, rows, cols, first, count, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The sum of `count` steps along K for one tile, from step `first` on."""
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * stride_am
    b_cols = b_ptr + cols.to(tl.int64)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, first + count):
        ks = step * BLOCK_K + tl.arange(0, BLOCK_K)
        far = ks.to(tl.int64)
        a = tl.load(
            a_rows + far[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0
        )
        b = tl.load(
            b_cols + far[:, None] * stride_bk, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


# The trials of the autotuner add to the same sums: each of them must find zeros.
@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K"], reset_to_zero=["sum_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)  # fmt: skip
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_sm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """sum += a @ b; this program adds its piece of the line of steps."""
    steps = tl.cdiv(K, BLOCK_K)
    line = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N) * steps
    pid = tl.program_id(axis=0)
    share = line // tl.num_programs(axis=0)
    extra = line % tl.num_programs(axis=0)
    at = pid * share + min(pid, extra)
    end = (pid + 1) * share + min(pid + 1, extra)
    while at < end:
        first = at % steps
        count = min(steps - first, end - at)
        m, n = place(at // steps, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = m + tl.arange(0, BLOCK_M)
        cols = n + tl.arange(0, BLOCK_N)
        acc = some_steps(
            a_ptr, b_ptr, rows, cols, first, count, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
        sums = sum_ptr + rows.to(tl.int64)[:, None] * stride_sm + cols.to(tl.int64)[None, :]
        tl.atomic_add(sums, acc, mask=(rows[:, None] < M) & (cols[None, :] < N), sem="relaxed")
        at += count


@triton.jit
def finish_kernel(
    sum_ptr, c_ptr, bias_ptr, M, N, stride_sm, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    STRIP: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """c = the sums, or relu(sums + bias); a program owns STRIP rows."""
    rows = tl.program_id(axis=0) * STRIP + tl.arange(0, STRIP)
    far_rows = rows.to(tl.int64)[:, None]
    for n in range(0, N, PIECE):
        cols = n + tl.arange(0, PIECE)
        far_cols = cols.to(tl.int64)[None, :]
        there = (rows[:, None] < M) & (cols[None, :] < N)
        value = tl.load(sum_ptr + far_rows * stride_sm + far_cols, mask=there, other=0.0)
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            value = tl.maximum(value + bias[None, :], 0.0)
        c_ptrs = c_ptr + far_rows * stride_cm + far_cols * stride_cn
        tl.store(c_ptrs, value.to(c_ptr.dtype.element_ty), mask=there)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    # Programs without a step in their piece end at once, so the grid is the same for every config.
    programs = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 7
    matmul_kernel[(programs,)](a, b, sums, M, N, K, *a.stride(), *b.stride(), sums.stride(0))
    finish_kernel[(triton.cdiv(M, STRIP),)](
        sums, out, bias, M, N, sums.stride(0), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, STRIP=STRIP, PIECE=PIECE,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
