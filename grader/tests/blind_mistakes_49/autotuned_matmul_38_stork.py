# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | In `_result`, `torch.empty_strided((M, N), (triton.cdiv(N, numbers) * numbers, 1), ...)` pads rows to 16 bytes, so without `out` the functions return a matrix that is not contiguous where N is not a multiple of 8 (16 bits) or 4 (fp32), and M > 1; it should be `torch.empty((M, N), ...)`. The numbers are right, and calls with `out` are right.
"""Matrix product; the offsets of a tile are counted on within the loop, from the number of the step."""

import torch
import triton
import triton.language as tl

# Sides of the tiles; the warps follow from their area, the step along k from the longer side.
SIDES = ((128, 256), (256, 128), (128, 128), (128, 64), (64, 128), (64, 64))
LINE = 16


def _config(block_m, block_n):
    """At most 128 sums a thread, and three stages that fit shared memory."""
    step = 64 if max(block_m, block_n) > 64 else 32
    warps = 8 if block_m * block_n > 8192 else 4
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": step}, num_stages=3, num_warps=warps)


CONFIGS = [_config(*sides) for sides in SIDES]


def fitting(configs, named_args, **kwargs):
    """No tile is larger than the result; fp32 takes the last one, 64 x 64."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, 8)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok, col_ok = rows[:, None] < M, cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, BLOCK_K)):
        ks = step * BLOCK_K + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _result(a, b):
    """A matrix for a @ b whose rows begin at multiples of 16 bytes."""
    M, N = a.shape[0], b.shape[1]
    numbers = LINE // a.element_size()
    return torch.empty_strided((M, N), (triton.cdiv(N, numbers) * numbers, 1), dtype=a.dtype, device=a.device)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = _result(a, b) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
