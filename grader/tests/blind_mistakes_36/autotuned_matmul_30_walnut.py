# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel: acc holds the tile of the transposed product, (BLOCK_N, BLOCK_M), and is stored without tl.trans at addresses of shape (BLOCK_M, BLOCK_N); all configs are square, so it compiles, and each tile of the result comes out transposed in itself (with zeros, or relu of 0 + bias values of the wrong place, where M and N differ in a tail); wrong in every case but M = N = 1; should store tl.trans(acc)
"""Matrix product from operands that both lie K-first: a tile of weights times a tile of activations."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# Square tiles move the fewest bytes for their number of sums.
CONFIGS = [
    _config(side, side, depth, stages, warps)
    for side, depth, stages, warps in (
        (128, 64, 4, 8),
        (128, 64, 3, 8),
        (128, 32, 4, 8),
        (64, 128, 3, 4),
        (64, 64, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """128 where the result is that large, 64 for the rest and for fp32."""
    large = min(named_args["M"], named_args["N"]) >= 128
    large = large and named_args["bias_ptr"].dtype != torch.float32
    return [c for c in configs if c.kwargs["BLOCK_M"] == 128] if large else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)

    # Weights: one row for each column of c. Activations: one column for each row of c.
    w_at = b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk
    x_at = a_ptr + ks[:, None] * stride_ak + rows[None, :] * stride_am
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        w = tl.load(w_at, mask=(cols < N)[:, None] & (ks < left)[None, :], other=0.0)
        x = tl.load(x_at, mask=(ks < left)[:, None] & (rows < M)[None, :], other=0.0)
        acc = tl.dot(w, x, acc, input_precision="ieee")
        w_at += BLOCK_K * stride_bk
        x_at += BLOCK_K * stride_ak

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), fused."""
    return _launch(a, b, bias, out, bias_relu=True)
