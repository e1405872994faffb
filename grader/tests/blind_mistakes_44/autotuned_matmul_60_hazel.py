# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | `_result` (both functions): without `out` the function returns a matrix whose rows are padded, `torch.empty_strided((M, N), (pitch, 1), ...)`; the README asks for a new contiguous matrix, `torch.empty((M, N), ...)`. The numbers are right; shows in calls without `out` where M > 1 and N is no multiple of 8 (16-bit) or 4 (fp32), as 33 x 65.
"""Autotuned matrix product on a persistent grid, with bias and ReLU in its epilogue where they are asked for."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32, and always the last one."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs[:-1] if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept + configs[-1:]


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Tile row and tile column: groups of GROUP_M tile rows, each walked column by column."""
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile - first * tiles_n
    return first + within % height, within // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a program takes every tile whose number fits its own."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(axis=0), tiles_m * tiles_n, tl.num_programs(axis=0)):
        i, j = place(tile, tiles_m, tiles_n, 8)
        rows = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        row_exists = rows[:, None] < M
        col_exists = cols[None, :] < N
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & col_exists, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _result(a, M, N):
    """A new (M, N) matrix for the result; its rows begin at multiples of 16 bytes, so that stores are wide."""
    per_line = 16 // a.element_size()
    pitch = triton.cdiv(N, per_line) * per_line
    return torch.empty_strided((M, N), (pitch, 1), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = _result(a, M, N) if out is None else out
    limit = 16
    if a.is_cuda and torch.cuda.is_available():
        limit = torch.cuda.get_device_properties(a.device).multi_processor_count

    def grid(meta):
        return (min(limit, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
