# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `matmul_kernel`, `acc = tl.dot(a, b, acc)` multiplies fp32 as TF32 on a GPU; it should have `input_precision="ieee"`: digits are lost for fp32. (2) In the store, `c_ptr + rows * stride_cm + cols` should be `... + cols * stride_cn`: wrong where `out` is transposed or every second column of a wider matrix, in every dtype.
"""Matrix product for any strides: autotuned tiles, two products in each step along K, fused bias and ReLU."""

import torch
import triton
import triton.language as tl

_SHAPES = (
    (128, 256, 32, 3, 8),
    (256, 128, 32, 3, 8),
    (128, 128, 32, 4, 8),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 2, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "HALF_K": half, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, half, stages, warps in _SHAPES
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
    across = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * across
    group, within = tile // per_group, tile % per_group
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def read(base, row, row_stride, col, col_stride, rows, cols):
    """Block of a matrix of rows x cols, 0 outside of it."""
    return tl.load(base + row * row_stride + col * col_stride, mask=(row < rows) & (col < cols), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HALF_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m.to(tl.int64) + tl.arange(0, BLOCK_M))[:, None]
    cols = (n.to(tl.int64) + tl.arange(0, BLOCK_N))[None, :]
    ks = tl.arange(0, HALF_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * HALF_K):
        for half in tl.static_range(2):
            at = k + half * HALF_K + ks
            a = read(a_ptr, rows, stride_am, at[None, :], stride_ak, M, K)
            b = read(b_ptr, at[:, None], stride_bk, cols, stride_bn, K, N)
            acc = tl.dot(a, b, acc)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(
        c_ptr + rows * stride_cm + cols, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N)
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
