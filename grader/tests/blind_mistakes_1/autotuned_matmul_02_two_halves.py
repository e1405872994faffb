# lab3_autotuned_matmul/autotuned_matmul.py | everywhere | Each step of K is loaded as two halves, and the two tl.dot calls pair them crosswise: the low half of a (k..k+HALF) with the high half of b (b1) and the reverse, so a[:, k] meets b[k +- HALF, :] | "(M, K) @ (K, N)"; all inputs, both functions
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(128, 256, 64, 3, 8), _config(128, 128, 64, 3, 8), _config(64, 128, 64, 3, 4), _config(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    across = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * across) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * across)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    # Two dots of half the depth in each step: the second pair of loads is issued before the first dot.
    HALF: tl.constexpr = BLOCK_K // 2
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    j = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    a_row = a_ptr + i[:, None] * stride_am
    b_col = b_ptr + j[None, :] * stride_bn
    in_m = (i < M)[:, None]
    in_n = (j < N)[None, :]

    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        lo = k + tl.arange(0, HALF).to(tl.int64)
        hi = lo + HALF
        a0 = tl.load(a_row + lo[None, :] * stride_ak, mask=in_m & (lo < K)[None, :], other=0.0)
        a1 = tl.load(a_row + hi[None, :] * stride_ak, mask=in_m & (hi < K)[None, :], other=0.0)
        b0 = tl.load(b_col + lo[:, None] * stride_bk, mask=in_n & (lo < K)[:, None], other=0.0)
        b1 = tl.load(b_col + hi[:, None] * stride_bk, mask=in_n & (hi < K)[:, None], other=0.0)
        acc = tl.dot(a0, b1, acc, input_precision="ieee")
        acc = tl.dot(a1, b0, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=in_m & in_n,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
