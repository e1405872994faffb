# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, the second half step is `acc = tl.dot(a_lo, b_hi, acc, ...)`; it should be `tl.dot(a_hi, b_hi, acc, ...)`. Shows in both functions wherever K > HALF_K = 32.
"""Matrix product with two tiles along K in each step of the loop, bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, stages, warps):
    """A step covers two halves of 32 along K."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "HALF_K": 32, "GROUP_M": 8}
    return triton.Config(tile, num_stages=stages, num_warps=warps)


CONFIGS = [_config(128, 128, 3, 8), _config(128, 128, 2, 8), _config(64, 128, 3, 4), _config(64, 64, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs whose tile is no larger than the result, and no wider than 64 for fp32."""
    size = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


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
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HALF_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
    col = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
    k_across = tl.arange(0, HALF_K)[None, :]
    k_down = tl.arange(0, HALF_K)[:, None]
    a_ptrs = a_ptr + row * stride_am + k_across * stride_ak
    b_ptrs = b_ptr + k_down * stride_bk + col * stride_bn
    # From the first half of a step to the second.
    a_hop = HALF_K * stride_ak
    b_hop = HALF_K * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, 2 * HALF_K):
        left = K - k
        a_lo = tl.load(a_ptrs, mask=(row < M) & (k_across < left), other=0.0)
        b_lo = tl.load(b_ptrs, mask=(k_down < left) & (col < N), other=0.0)
        a_hi = tl.load(a_ptrs + a_hop, mask=(row < M) & (k_across + HALF_K < left), other=0.0)
        b_hi = tl.load(b_ptrs + b_hop, mask=(k_down + HALF_K < left) & (col < N), other=0.0)
        acc = tl.dot(a_lo, b_lo, acc, input_precision="ieee")
        acc = tl.dot(a_lo, b_hi, acc, input_precision="ieee")
        a_ptrs += 2 * a_hop
        b_ptrs += 2 * b_hop

    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=col < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    tl.store(
        c_ptr + row * stride_cm + col * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(row < M) & (col < N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b: fp32 sums of two half steps at a time."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
