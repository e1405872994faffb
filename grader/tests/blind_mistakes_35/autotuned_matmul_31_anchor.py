# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | square_kernel computes the transposed tile (rows of the tile are columns of c), but stores it at c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn as if it were not: each tile of the result is transposed within itself (its sides are equal, so the shapes agree), in both functions, in every case but M = N = 1. It should be tl.trans(sums) at the store, or addresses and mask with n[:, None] and m[None, :].
"""Matrix product on square tiles: each program computes (B^T A^T), columns of c by rows of c."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"SIDE": side, "DEPTH": depth}, num_stages=stages, num_warps=warps)
    for side, depth, stages, warps in ((128, 64, 3, 8), (128, 32, 4, 8), (64, 64, 4, 4), (32, 32, 3, 4))
]


def fitting(configs, named_args, **kwargs):
    """The squares that fit into the result; up to 64 for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    return [c for c in configs if c.kwargs["SIDE"] <= limit] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def square_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    # Six rows of tiles at a time, each of these strips from left to right.
    pid = tl.program_id(0)
    strip = 6 * tl.cdiv(N, SIDE)
    top = pid // strip * 6
    height = tl.minimum(tl.cdiv(M, SIDE) - top, 6)
    m_one = (top + pid % strip % height) * SIDE + tl.arange(0, SIDE)
    n_one = (pid % strip // height) * SIDE + tl.arange(0, SIDE)
    m_ok = m_one < M
    n_ok = n_one < N
    m = m_one.to(tl.int64)
    n = n_one.to(tl.int64)

    k_one = tl.arange(0, DEPTH)
    bt_at = b_ptr + n[:, None] * stride_bn + k_one[None, :] * stride_bk
    at_at = a_ptr + k_one[:, None] * stride_ak + m[None, :] * stride_am
    sums = tl.zeros((SIDE, SIDE), tl.float32)
    left = K
    for _ in range(tl.cdiv(K, DEPTH)):
        bt = tl.load(bt_at, mask=n_ok[:, None] & (k_one < left)[None, :], other=0.0)
        at = tl.load(at_at, mask=(k_one < left)[:, None] & m_ok[None, :], other=0.0)
        sums = tl.dot(bt, at, sums, input_precision="ieee")
        bt_at += DEPTH * stride_bk
        at_at += DEPTH * stride_ak
        left -= DEPTH

    if BIAS_RELU:
        bias = tl.load(bias_ptr + n, mask=n_ok, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[:, None], 0.0)

    c_at = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_at, sums.to(c_ptr.dtype.element_ty), mask=m_ok[:, None] & n_ok[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["SIDE"]) * triton.cdiv(N, meta["SIDE"]),)  # noqa: E731
    square_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, True)
