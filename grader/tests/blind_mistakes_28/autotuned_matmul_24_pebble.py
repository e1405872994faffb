# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The block pointer of b in blockwise_kernel has block_shape=(BLOCK_N, BLOCK_K) where it must be (BLOCK_K, BLOCK_N): tl.dot gets two tiles whose inner sizes differ in every config, so neither function compiles or runs, in any case.
"""Matrix product on block pointers: Triton keeps the offsets, and checks the edges."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config(dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64), num_stages=3, num_warps=8),
    triton.Config(dict(BLOCK_M=256, BLOCK_N=128, BLOCK_K=64), num_stages=3, num_warps=8),
    triton.Config(dict(BLOCK_M=128, BLOCK_N=128, BLOCK_K=32), num_stages=4, num_warps=8),
    triton.Config(dict(BLOCK_M=64, BLOCK_N=128, BLOCK_K=32), num_stages=4, num_warps=4),
    triton.Config(dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32), num_stages=3, num_warps=4),
]


def prune(configs, named_args, **kwargs):
    is_fp32 = named_args["a_ptr"].dtype == torch.float32
    bound = min(64 if is_fp32 else 256, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= bound and c.kwargs["BLOCK_N"] <= bound]
    return kept if len(kept) > 0 else configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def blockwise_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    WITH_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(axis=0)
    i, j = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, 8)
    m = i * BLOCK_M
    n = j * BLOCK_N

    a_tile = tl.make_block_ptr(
        base=a_ptr,
        shape=(M, K),
        strides=(stride_am, stride_ak),
        offsets=(m, 0),
        block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )
    b_tile = tl.make_block_ptr(
        base=b_ptr,
        shape=(K, N),
        strides=(stride_bk, stride_bn),
        offsets=(0, n),
        block_shape=(BLOCK_N, BLOCK_K),
        order=(1, 0),
    )
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile = tl.advance(a_tile, (0, BLOCK_K))
        b_tile = tl.advance(b_tile, (BLOCK_K, 0))

    if WITH_BIAS:
        cols = n + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)

    c_tile = tl.make_block_ptr(
        base=c_ptr,
        shape=(M, N),
        strides=(stride_cm, stride_cn),
        offsets=(m, n),
        block_shape=(BLOCK_M, BLOCK_N),
        order=(1, 0),
    )
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _call(a, b, bias, out, with_bias):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    blockwise_kernel[grid](
        a,
        b,
        out,
        bias,
        M,
        N,
        K,
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        out.stride(0),
        out.stride(1),
        WITH_BIAS=with_bias,
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _call(a, b, b, out, with_bias=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _call(a, b, bias, out, with_bias=True)
