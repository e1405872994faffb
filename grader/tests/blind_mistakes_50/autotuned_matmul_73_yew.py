# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `SHAPES`, `(128, 192, 64, 4, 8)`: BLOCK_N = 192 is no power of two, so `tl.arange(0, BLOCK_N)` and `tl.zeros` do not compile, and the autotuner does not catch this. Shows for fp16 and bf16 where M and N are both at least 192 (`fitting` removes the config otherwise); fp32 and smaller results are right. It should be 128 or 256 columns.
"""Autotuned matrix product with the tiles in the order of tl.swizzle2d."""

import torch
import triton
import triton.language as tl

# Rows, columns and depth of a tile, stages of the pipeline, warps.
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 192, 64, 4, 8),  # 40 KB a stage, 96 sums a thread
    (128, 128, 64, 3, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; without tensor cores, for fp32, only small ones."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def load_tile(ptr, rows, cols, stride_r, stride_c, height, width):
    """The elements at these rows and columns, 0 outside of height x width."""
    inside = (rows[:, None] < height) & (cols[None, :] < width)
    return tl.load(ptr + rows[:, None] * stride_r + cols[None, :] * stride_c, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    i, j = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP_M)
    rows = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = load_tile(a_ptr, rows, ks, stride_am, stride_ak, M, K)
        b = load_tile(b_ptr, ks, cols, stride_bk, stride_bn, K, N)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)

    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = a.new_empty((M, N))
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue is in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
