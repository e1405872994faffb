# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product with programs that walk over the tiles, and the same with bias and ReLU."""

import torch
import triton
import triton.language as tl

# As many programs as an H200 has SMs; each takes every PROGRAMS-th tile.
PROGRAMS = 132


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 3, 4),
)
CONFIGS = [_config(*shape) for shape in SHAPES]


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
    group = tile // (GROUP_M * across)
    top = group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    rest = tile - group * GROUP_M * across
    column = rest // height
    row = top + rest - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); each program computes several tiles, one after the other."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        a_rows = a_ptr + i * stride_am
        b_cols = b_ptr + j * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
            a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(i < M) & (ks[None, :] < K), other=0.0)
            b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(j < N) & (ks[:, None] < K), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
            acc = tl.where(acc > 0, acc, 0.0)
        tl.store(
            c_ptr + i * stride_cm + j * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(i < M) & (j < N),
        )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(tiles, PROGRAMS),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
