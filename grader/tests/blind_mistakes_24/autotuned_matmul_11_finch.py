# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Without `out`, new_result returns `torch.empty_strided((M, N), (pitch, 1), ...)` with a pitch always larger than N: the values are right, but the new matrix is not contiguous (for M > 1), as the README asks. It should be `torch.empty((M, N), ...)`.
"""Matmul on a two-dimensional grid; the mask along K is compiled only where K has a tail."""

import torch
import triton
import triton.language as tl


def candidate(block_m, block_n, block_k, stages, warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    candidate(128, 256, 64, 3, 8),
    candidate(128, 256, 32, 4, 8),
    candidate(128, 128, 64, 3, 8),
    candidate(64, 128, 64, 3, 4),
    candidate(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Drop the tiles that are larger than the result, and for fp32 all but those of 64 x 64."""
    largest = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        largest = min(largest, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= largest and config.kwargs["BLOCK_N"] <= largest:
            kept.append(config)
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Axis 1 of the grid counts strips of 8 tile rows, axis 0 the tiles of a strip, column by column."""
    inside = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    n = (inside // 8) * BLOCK_N
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    col_ok = cols[None, :] < N
    for strip in range(tl.program_id(axis=1), tl.cdiv(tiles_m, 8), tl.num_programs(axis=1)):
        tile_m = strip * 8 + inside % 8
        # the last strip may be lower: its other programs have nothing to do
        if tile_m < tiles_m:
            rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
            row_ok = rows[:, None] < M
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
                a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
                b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
                if EVEN_K:
                    a = tl.load(a_ptrs, mask=row_ok, other=0.0)
                    b = tl.load(b_ptrs, mask=col_ok, other=0.0)
                else:
                    a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K), other=0.0)
                    b = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < K), other=0.0)
                acc = tl.dot(a, b, acc, input_precision="ieee")
            if BIAS_RELU:
                bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
                acc = tl.maximum(acc + bias[None, :], 0.0)
            c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def new_result(a, M, N):
    """A matrix for the result. Each row begins at a multiple of 64 elements, so that stores are aligned."""
    pitch = (N // 64 + 1) * 64
    return torch.empty_strided((M, N), (pitch, 1), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = new_result(a, M, N)
    grid = lambda meta: (  # noqa: E731
        8 * triton.cdiv(N, meta["BLOCK_N"]),
        min(triton.cdiv(triton.cdiv(M, meta["BLOCK_M"]), 8), 1024),
    )
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias (N,)."""
    return _launch(a, b, bias, out, bias_relu=True)
