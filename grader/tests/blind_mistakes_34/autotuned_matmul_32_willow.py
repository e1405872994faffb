# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""The transposed product, c.T = b.T @ a.T, tile by tile, autotuned; bias and ReLU in the epilogue.

A transposed matrix is the same memory with its strides exchanged, so the kernel reads b.T and a.T and stores c.T.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# BLOCK_M counts rows of c, which are the columns of the tile that is summed.
CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(256, 128, 64, 4, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 64, 32, 4, 4),
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
    # Whole bands of GROUP_M rows come first; what is left below them is one band of its own.
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_m = tl.cdiv(M, BLOCK_M)
    whole = tiles_m // GROUP_M * GROUP_M
    band = tile // (GROUP_M * tiles_n)
    top = band * GROUP_M
    height = tl.where(top < whole, GROUP_M, tiles_m - whole)
    inside = tile - top * tiles_n
    return (top + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c.T = b.T @ a.T; program pid owns the BLOCK_N x BLOCK_M tile of c.T that is one tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    # Of c.T the columns of c run down, the rows of c run across.
    down = (n.to(tl.int64) + tl.arange(0, BLOCK_N))[:, None]
    across = (m.to(tl.int64) + tl.arange(0, BLOCK_M))[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    bt = b_ptr + down * stride_bn + ks[None, :] * stride_bk
    at = a_ptr + ks[:, None] * stride_ak + across * stride_am
    bt_step = tl.cast(stride_bk, tl.int64) * BLOCK_K
    at_step = tl.cast(stride_ak, tl.int64) * BLOCK_K

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(bt, mask=(down < N) & (ks[None, :] < K - k), other=0.0)
        right = tl.load(at, mask=(ks[:, None] < K - k) & (across < M), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        bt += bt_step
        at += at_step

    if BIAS_RELU:
        bias = tl.load(bias_ptr + down, mask=down < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    tl.store(
        c_ptr + down * stride_cn + across * stride_cm,
        acc.to(c_ptr.dtype.element_ty),
        mask=(down < N) & (across < M),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
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
