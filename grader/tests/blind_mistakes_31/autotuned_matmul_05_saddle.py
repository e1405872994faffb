# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) place takes GROUP_M as the height of every group, in place % GROUP_M and place // GROUP_M of the number within the group; the last group may have fewer rows of tiles, so some programs get tile rows that do not exist and some tiles of c stay unwritten, wherever the tiles along M are no multiple of GROUP_M = 4 and there is more than one tile along N. It should divide by min(tiles along M - first row of the group, GROUP_M). (2) matmul_kernel stores at c_ptr + rows * stride_cm + cols, without the column stride of out, so the result is wrong where out is transposed or every second column of a wider matrix. It should be cols * stride_cn with out.stride(1) passed.
"""Autotuned matrix product with a fused epilogue."""

import torch
import triton
import triton.language as tl

GROUP = 4
CONFIGS = [
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": GROUP}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": GROUP}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": GROUP}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": GROUP}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Drops tiles that are larger than the result, and large ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // in_group
    place_in_group = tile % in_group
    tile_row = group * GROUP_M + place_in_group % GROUP_M
    tile_col = place_in_group // GROUP_M
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.jit
def add_bias_relu(acc, bias_ptr, cols, N):
    """The epilogue, in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    first_row, first_col = place(tl.program_id(0), N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = first_row.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = first_col.to(tl.int64) + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        ks = k + steps
        k_exists = ks < K
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M)[:, None] & k_exists[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=k_exists[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = add_bias_relu(acc, bias_ptr, cols, N)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :],
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (cols < N)[None, :],
    )


def _run(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.size(1)
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _run(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _run(a, b, bias, out, bias_relu=True)
