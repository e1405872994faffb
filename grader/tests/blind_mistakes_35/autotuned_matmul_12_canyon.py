# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | _launch computes the transposed product z = b.T @ a.T, of shape (N, M), but passes `out.stride(0), out.stride(1)` as stride_zp, stride_zq: z is stored as if out were (N, M), so a square result comes out transposed and another one is scattered, partly out of bounds where N > M. Shows in every case of both functions but N = 1 with equal strides of out (as M = N = 1); should be out.stride(1), out.stride(0), the strides of out.T.
"""Matrix product by way of its transpose: c.T = b.T @ a.T, so that the bias belongs to the rows of a tile."""

import torch
import triton
import triton.language as tl

TILES = [(256, 128, 64, 3, 8), (128, 256, 64, 3, 8), (128, 128, 64, 4, 8), (64, 128, 64, 4, 4),
         (64, 64, 64, 3, 4), (32, 32, 32, 3, 4)]  # fmt: skip
CONFIGS = [
    triton.Config({"BLOCK_P": p, "BLOCK_Q": q, "BLOCK_K": k, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for p, q, k, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are no larger than z, and no larger than 64 for fp32."""
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    size = min(named_args["P"], named_args["Q"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_P"], c.kwargs["BLOCK_Q"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, P, Q, BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, GROUP: tl.constexpr):
    tiles_q = tl.cdiv(Q, BLOCK_Q)
    in_group = GROUP * tiles_q
    first = tile // in_group * GROUP
    height = min(tl.cdiv(P, BLOCK_P) - first, GROUP)
    within = tile % in_group
    return (first + within % height) * BLOCK_P, within // height * BLOCK_Q


@triton.autotune(configs=CONFIGS, key=["P", "Q", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, P, Q, K,
    stride_xp, stride_xk, stride_yk, stride_yq, stride_zp, stride_zq, BIAS_RELU: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """z = x @ y, or relu(x @ y + bias as a column); x is (P, K), y (K, Q), z (P, Q), bias (P,)."""
    p0, q0 = place(tl.program_id(axis=0), P, Q, BLOCK_P, BLOCK_Q, GROUP)
    ps = (p0 + tl.arange(0, BLOCK_P)).to(tl.int64)
    qs = (q0 + tl.arange(0, BLOCK_Q)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    p_in = ps[:, None] < P
    q_in = qs[None, :] < Q
    x_ptrs = x_ptr + ps[:, None] * stride_xp + ks[None, :] * stride_xk
    y_ptrs = y_ptr + ks[:, None] * stride_yk + qs[None, :] * stride_yq

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_P, BLOCK_Q), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_ptrs, mask=p_in & (ks[None, :] < K - k), other=0.0)
        y = tl.load(y_ptrs, mask=(ks[:, None] < K - k) & q_in, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_ptrs += BLOCK_K * stride_xk
        y_ptrs += BLOCK_K * stride_yk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + ps, mask=ps < P, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    z_ptrs = z_ptr + ps[:, None] * stride_zp + qs[None, :] * stride_zq
    tl.store(z_ptrs, acc.to(z_ptr.dtype.element_ty), mask=p_in & q_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    x, y = b.T, a.T

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_P"]) * triton.cdiv(M, meta["BLOCK_Q"]),)

    matmul_kernel[grid](
        x, y, out, bias, N, M, K,
        x.stride(0), x.stride(1), y.stride(0), y.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
