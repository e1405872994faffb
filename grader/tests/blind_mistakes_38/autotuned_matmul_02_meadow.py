# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel is persistent, and acc = tl.zeros(...) stands before the loop over tiles, so the second and later tiles of a program start from the finished values of its previous tile (in matmul_bias_relu after bias and relu). Shows only where there are more tiles than PROGRAMS = 132 (large results, or small tiles); acc must be set to zero inside of the loop over tiles.
"""Persistent matrix product: a fixed number of programs walks over all tiles of the result."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result, and none above 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= widest and c.kwargs["BLOCK_N"] <= widest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    strips_m = tl.cdiv(M, BLOCK_M)
    strips_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * strips_n)
    inside = tile - group * GROUP_M * strips_n
    top = group * GROUP_M
    tall = tl.minimum(strips_m - top, GROUP_M)
    row = top + inside % tall
    column = inside // tall
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program i owns the tiles i, i + P, i + 2 P, ... where P is the number of programs."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    lane_m = tl.arange(0, BLOCK_M)
    lane_n = tl.arange(0, BLOCK_N)
    lane_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)

    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = m + lane_m
        cols = n + lane_n
        rows_in = rows[:, None] < M
        cols_in = cols[None, :] < N
        a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + lane_k[None, :] * stride_ak
        b_ptrs = b_ptr + lane_k[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn

        for k in range(0, K, BLOCK_K):
            left = K - k
            x = tl.load(a_ptrs, mask=rows_in & (lane_k[None, :] < left), other=0.0)
            y = tl.load(b_ptrs, mask=(lane_k[:, None] < left) & cols_in, other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk

        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=rows_in & cols_in)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), any strides of a, b and out."""
    return _launch(a, b, bias, out, bias_relu=True)
