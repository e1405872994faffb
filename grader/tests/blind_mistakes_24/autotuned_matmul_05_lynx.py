# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In accumulate_kernel a slice ends at `end`, but the mask of its last block is `ks < K`: where the length of a slice, cdiv(K, SLICES), is no multiple of BLOCK_K (32), that block reaches into the next slice and these products are added twice. It should be `ks < end`; right for K < 64, results above 2^22 elements, and K such as 128, 256, 1024.
"""Matrix product whose long sums are shared: several programs add their part of K to one fp32 matrix.

The second kernel has the epilogue and rounds to the dtype of the result.
"""

import torch
import triton
import triton.language as tl


def shape(block_m, block_n, stages, warps):
    values = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32, "GROUP_M": 4}
    return triton.Config(values, num_stages=stages, num_warps=warps)


CONFIGS = [
    shape(128, 256, 4, 8),
    shape(256, 128, 4, 8),
    shape(128, 128, 4, 8),
    shape(64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; fp32 takes the small one."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    group = tile // (GROUP_M * across)
    rest = tile - group * GROUP_M * across
    height = tl.minimum(down - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + rest % height) * BLOCK_M, rest // height * BLOCK_N


# The trials add to the same matrix, so it is cleared before each of them.
@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def accumulate_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    SLICES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """sums += a @ b; axis 0 of the grid counts the tiles, axis 1 the slices of K. sums is (M, N), contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]
    a_ptrs = a_ptr + rows[:, None] * stride_am
    b_ptrs = b_ptr + cols[None, :] * stride_bn

    length = tl.cdiv(K, SLICES)
    start = tl.program_id(axis=1) * length
    end = tl.minimum(start + length, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        k_ok = ks < K
        a = tl.load(a_ptrs + ks[None, :] * stride_ak, mask=row_ok & k_ok[None, :], other=0.0)
        b = tl.load(b_ptrs + ks[:, None] * stride_bk, mask=k_ok[:, None] & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, bias_ptr, c_ptr, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """One row of the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    for first in range(0, N, BLOCK):
        cols = (first + tl.arange(0, BLOCK)).to(tl.int64)
        ok = cols < N
        y = tl.load(sums_ptr + row * N + cols, mask=ok, other=0.0)
        if BIAS_RELU:
            y = tl.maximum(y + tl.load(bias_ptr + cols, mask=ok, other=0.0).to(tl.float32), 0.0)
        tl.store(c_ptr + row * stride_cm + cols * stride_cn, y.to(c_ptr.dtype.element_ty), mask=ok)


def slices_of(M, N, K):
    """Programs that share one tile: none for a large result, which has tiles enough."""
    if M * N > 1 << 22 or K < 64:
        return 1
    return 4 if K >= 256 else 2


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    slices = slices_of(M, N, K)

    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731

    accumulate_kernel[lambda meta: (tiles(meta), slices)](
        a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SLICES=slices
    )
    finish_kernel[(M,)](sums, bias, out, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=512)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
