# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | _result returns `a.new_empty((N, M)).T` where b is stored by columns (b.stride(0) < b.stride(1)): a call without out gives a transposed, not contiguous matrix with the right numbers. Shows in both functions where out is None, b is a transposed view, and M and N are above 1; the README asks for a new contiguous (M, N) matrix: always a.new_empty((M, N)).
"""Matrix product tile by tile; all accesses to matrices go through two helpers."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """Tile sizes, stages of the pipeline, warps."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 64, 4, 4),
    _config(32, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def block_at(ptr, rows, cols, row_stride, col_stride):
    return ptr + rows[:, None] * row_stride + cols[None, :] * col_stride


@triton.jit
def inside(rows, cols, height, width):
    return (rows[:, None] < height) & (cols[None, :] < width)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(block_at(a_ptr, rows, ks, stride_am, stride_ak), mask=inside(rows, ks, M, K), other=0.0)
        b = tl.load(block_at(b_ptr, ks, cols, stride_bk, stride_bn), mask=inside(ks, cols, K, N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_block = block_at(c_ptr, rows, cols, stride_cm, stride_cn)
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), mask=inside(rows, cols, M, N))


def _result(a, b):
    """A new (M, N) matrix."""
    M, N = a.shape[0], b.shape[1]
    if b.stride(0) < b.stride(1):
        return a.new_empty((N, M)).T
    return a.new_empty((M, N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = _result(a, b) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
