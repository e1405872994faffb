# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `SHAPES` the entry `(128, 192, 64, 4, 8)` has BLOCK_N = 192, which is no power of two, so `tl.arange(0, BLOCK_N)` in `matmul_kernel` does not compile (arange's range must be a power of 2); it should be 128 or 256. It raises wherever `fitting` keeps this config: 16-bit dtypes with M and N both at least 192; smaller sizes and fp32 are right.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue.

Strips of tile rows are walked like a snake: the first from left to right, the next from right to left.
"""

import torch
import triton
import triton.language as tl

# (BLOCK_M, BLOCK_N, BLOCK_K, stages, warps); shared memory is stages * (BLOCK_M + BLOCK_N) * BLOCK_K * 2 bytes.
SHAPES = (
    (128, 256, 64, 3, 8),  # 144 KB
    (128, 192, 64, 4, 8),  # 160 KB
    (128, 128, 64, 4, 8),  # 128 KB
    (64, 128, 64, 4, 4),  # 96 KB
    (64, 64, 32, 4, 4),  # 32 KB, or 64 KB for fp32
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "STRIP": 8}, num_stages=s, num_warps=w)
    for m, n, k, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STRIP: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    strip = tile // (STRIP * across)
    within = tile % (STRIP * across)
    height = tl.minimum(down - strip * STRIP, STRIP)
    row = strip * STRIP + within % height
    column = within // height
    column = tl.where(strip % 2 == 0, column, across - 1 - column)
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, STRIP)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    k_row = tl.arange(0, BLOCK_K)[None, :]
    k_col = tl.arange(0, BLOCK_K)[:, None]
    pa = a_ptr + i * stride_am + k_row * stride_ak
    pb = b_ptr + k_col * stride_bk + j * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    left = K
    for _step in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(pa, mask=(i < M) & (k_row < left), other=0.0)
        b = tl.load(pb, mask=(k_col < left) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        pa += BLOCK_K * stride_ak
        pb += BLOCK_K * stride_bk
        left -= BLOCK_K

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
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
