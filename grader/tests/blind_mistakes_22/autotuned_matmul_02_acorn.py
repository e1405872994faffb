# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In matmul_kernel the tile of b is loaded as (BLOCK_N, BLOCK_K) and given to tl.dot as it is: (BLOCK_M, BLOCK_K) and (BLOCK_N, BLOCK_K) do not go together, as BLOCK_N differs from BLOCK_K in every config. It should be tl.trans(b).
"""Matrix product: a program for each tile of c; tiles of b are taken row by row of b.T, as weights are stored."""

import torch
import triton
import triton.language as tl

# tile of c, step along K, stages, warps
SHAPES = [(128, 256, 64, 3, 8), (128, 128, 32, 4, 8), (128, 128, 64, 3, 4), (32, 64, 32, 2, 4)]
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Only the small tile for fp32 and for small results."""
    small = min(named_args["M"], named_args["N"]) < 128
    return configs[-1:] if small or named_args["a_ptr"].dtype == torch.float32 else configs


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    inside = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    tile_m = group * GROUP_M + inside % height
    tile_n = inside // height
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    j = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        k = (step * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)[None, :]
        a = tl.load(
            a_ptr + i[:, None] * stride_am + k * stride_ak, mask=(i[:, None] < M) & (k < K), other=0.0
        )
        b = tl.load(
            b_ptr + j[:, None] * stride_bn + k * stride_bk, mask=(j[:, None] < N) & (k < K), other=0.0
        )
        acc += tl.dot(a, b, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(i[:, None] < M) & (j[None, :] < N),
    )


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, True)
