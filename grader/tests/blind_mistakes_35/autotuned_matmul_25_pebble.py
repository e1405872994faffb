# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | the numbers are right, but where no out is given and N > M, _product computes the transposed product and returns target.T, a transposed view of an (N, M) tensor: the new result is not contiguous (both functions; shows only without out, for N > M > 1). The README asks for a new contiguous (M, N) matrix: allocate torch.empty((M, N)) and write through its transposed view.
"""Matrix product that puts the longer side of the result first: out.T = b.T @ a.T where N > M."""

import torch
import triton
import triton.language as tl


def _option(p, q, k, stages, warps):
    return triton.Config({"BLOCK_P": p, "BLOCK_Q": q, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


# The first side is the longer one, so the tiles are high rather than wide.
CONFIGS = [
    _option(256, 128, 64, 3, 8),
    _option(128, 128, 64, 3, 8),
    _option(128, 64, 64, 4, 4),
    _option(64, 64, 32, 4, 4),
    _option(64, 32, 32, 4, 4),
    _option(32, 16, 32, 3, 2),
]


def fitting(configs, named_args, **kwargs):
    P, Q = named_args["P"], named_args["Q"]
    if named_args["left"].dtype == torch.float32:
        P, Q = min(P, 64), min(Q, 64)
    return [c for c in configs if c.kwargs["BLOCK_P"] <= P and c.kwargs["BLOCK_Q"] <= Q] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["P", "Q", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    left, right, target, bias, P, Q, K,
    stride_lp, stride_lk, stride_rk, stride_rq, stride_tp, stride_tq,
    BIAS_ALONG: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """target (P, Q) = left (P, K) @ right (K, Q), then bias and ReLU if BIAS_ALONG is "p" or "q", the axis of bias."""
    across = tl.cdiv(Q, BLOCK_Q)
    in_group = 8 * across
    pid = tl.program_id(0)
    first = pid // in_group * 8
    height = min(tl.cdiv(P, BLOCK_P) - first, 8)
    p = (first + (pid % in_group) % height) * BLOCK_P + tl.arange(0, BLOCK_P)
    q = ((pid % in_group) // height) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    p_ok = p < P
    q_ok = q < Q

    ks = tl.arange(0, BLOCK_K)
    left_at = left + p.to(tl.int64)[:, None] * stride_lp + ks[None, :] * stride_lk
    right_at = right + ks[:, None] * stride_rk + q.to(tl.int64)[None, :] * stride_rq
    acc = tl.zeros((BLOCK_P, BLOCK_Q), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(left_at, mask=p_ok[:, None] & (ks[None, :] < K - k), other=0.0)
        y = tl.load(right_at, mask=(ks[:, None] < K - k) & q_ok[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        left_at += BLOCK_K * stride_lk
        right_at += BLOCK_K * stride_rk

    if BIAS_ALONG == "p":
        shift = tl.load(bias + p, mask=p_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + shift[:, None], 0.0)
    if BIAS_ALONG == "q":
        shift = tl.load(bias + q, mask=q_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + shift[None, :], 0.0)

    target_at = target + p.to(tl.int64)[:, None] * stride_tp + q.to(tl.int64)[None, :] * stride_tq
    tl.store(target_at, acc.to(target.dtype.element_ty), mask=p_ok[:, None] & q_ok[None, :])


def _product(a, b, bias, out):
    flip = b.shape[1] > a.shape[0]
    left, right = (b.T, a.T) if flip else (a, b)
    P, K = left.shape
    Q = right.shape[1]
    if out is None:
        target = torch.empty((P, Q), device=a.device, dtype=a.dtype)
        out = target.T if flip else target
    else:
        target = out.T if flip else out
    if bias is None:
        bias, along = a, "none"
    else:
        along = "p" if flip else "q"
    grid = lambda meta: (triton.cdiv(P, meta["BLOCK_P"]) * triton.cdiv(Q, meta["BLOCK_Q"]),)  # noqa: E731
    product_kernel[grid](
        left, right, target, bias, P, Q, K,
        *left.stride(), *right.stride(), *target.stride(), BIAS_ALONG=along,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; any strides, fp32 sums."""
    return _product(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); any strides of a, b and out."""
    return _product(a, b, bias, out)
