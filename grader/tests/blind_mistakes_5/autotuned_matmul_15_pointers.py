# labs/lab3_autotuned_matmul/autotuned_matmul.py | honest | Block pointers with boundary_check and advance.
"""Matrix product with block pointers: no offsets and no masks are written by hand."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 32, "GROUP": 4}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 4}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for small results and for fp32."""
    limit = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    return [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit] or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    wide = tl.cdiv(N, BN)
    high = tl.cdiv(M, BM)
    group = tile // (GROUP * wide)
    inside = tile - group * (GROUP * wide)
    height = tl.minimum(high - group * GROUP, GROUP)
    return (group * GROUP + inside % height) * BM, inside // height * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, a0, a1, b0, b1, c0, c1, FUSE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c = a @ b, with relu(... + bias) where FUSE."""
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    a_tile = tl.make_block_ptr(a_ptr, (M, K), (a0, a1), (m, 0), (BM, BK), (1, 0))
    b_tile = tl.make_block_ptr(b_ptr, (K, N), (b0, b1), (0, n), (BK, BN), (1, 0))
    c_tile = tl.make_block_ptr(c_ptr, (M, N), (c0, c1), (m, n), (BM, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        a = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
        a_tile = tl.advance(a_tile, (0, BK))
        b_tile = tl.advance(b_tile, (BK, 0))
    if FUSE:
        bias_tile = tl.make_block_ptr(bias_ptr, (N,), (1,), (n,), (BN,), (0,))
        bias = tl.load(bias_tile, boundary_check=(0,), padding_option="zero")
        acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0)
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _run(a, b, bias, out, fuse):
    M, N, K = a.size(0), b.size(1), a.size(1)
    if out is None:
        out = a.new_empty((M, N))
    kernel[lambda c: (triton.cdiv(M, c["BM"]) * triton.cdiv(N, c["BN"]),)](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), FUSE=fuse
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides, fp32 sums."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out, True)
