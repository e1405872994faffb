# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `_product` the launch passes `*out.stride()` with the pointer of `z = out.T`; it should be `*z.stride()`, because the kernel computes the transposed product. Square results are stored transposed, others land at wrong places or outside of `out`; in both functions, in all cases but 1 x 1.
"""Matrix product tile by tile, computed as the product of the transposed views, and the same with bias and ReLU."""

import torch
import triton
import triton.language as tl

# rows and columns of a tile, step along K, stages, warps
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_P": p, "BLOCK_Q": q, "BLOCK_K": k, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for p, q, k, stages, warps in SHAPES
]


def worthwhile(configs, named_args, **kwargs):
    """Tiles no larger than the result; small ones for fp32, which has no tensor cores."""
    most = min(named_args["P"], named_args["Q"])
    if named_args["x_ptr"].dtype == torch.float32:
        most = min(most, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_P"] <= most and c.kwargs["BLOCK_Q"] <= most]
    return kept or configs[-1:]


@triton.jit
def locate(tile, P, Q, BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, GROUP: tl.constexpr):
    down = tl.cdiv(P, BLOCK_P)
    across = tl.cdiv(Q, BLOCK_Q)
    full = GROUP * across
    first = tile // full * GROUP
    height = min(down - first, GROUP)
    within = tile % full
    return (first + within % height) * BLOCK_P, (within // height) * BLOCK_Q


@triton.autotune(configs=CONFIGS, key=["P", "Q", "K"], prune_configs_by={"early_config_prune": worthwhile})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, P, Q, K,
    stride_xp, stride_xk, stride_yk, stride_yq, stride_zp, stride_zq, BIAS_RELU: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """z = x @ y for x (P, K) and y (K, Q); the bias has one value for each row of z."""
    p, q = locate(tl.program_id(axis=0), P, Q, BLOCK_P, BLOCK_Q, GROUP)
    ps = p + tl.arange(0, BLOCK_P)
    qs = q + tl.arange(0, BLOCK_Q)
    ks = tl.arange(0, BLOCK_K)
    p_exists = (ps < P)[:, None]
    q_exists = (qs < Q)[None, :]
    far_p = ps.to(tl.int64)[:, None]
    far_q = qs.to(tl.int64)[None, :]

    x_ptrs = x_ptr + far_p * stride_xp + ks[None, :] * stride_xk
    y_ptrs = y_ptr + ks[:, None] * stride_yk + far_q * stride_yq
    acc = tl.zeros((BLOCK_P, BLOCK_Q), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        x = tl.load(x_ptrs, mask=p_exists & (ks[None, :] < left), other=0.0)
        y = tl.load(y_ptrs, mask=q_exists & (ks[:, None] < left), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_ptrs += BLOCK_K * stride_xk
        y_ptrs += BLOCK_K * stride_yk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + ps, mask=ps < P, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)
    z_ptrs = z_ptr + far_p * stride_zp + far_q * stride_zq
    tl.store(z_ptrs, acc.to(z_ptr.dtype.element_ty), mask=p_exists & q_exists)


def _product(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # The transpose of a @ b is b.T @ a.T: then the bias lies along the rows of a tile.
    x, y, z = b.T, a.T, out.T
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_P"]) * triton.cdiv(M, meta["BLOCK_Q"]),)  # noqa: E731
    product_kernel[grid](
        x, y, z, bias, N, M, K, *x.stride(), *y.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in fp32 sums, rounded once to the dtype of a."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,)."""
    return _product(a, b, bias, out, True)
