# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | where b is stored column by column (NT) and no out is given, _launch computes the transposed product into a new (N, M) matrix and returns its transposed view (`result.T`), so both functions return a matrix that is not contiguous; the numbers are right; shows for transposed b (stride(0) 1, K > 1) without out, where N > 1 and M > 1; out should be allocated as a contiguous (M, N) matrix before the exchange, its view out.T be passed on, and out be returned
"""Matrix product; where b is stored column by column, the transposed product is computed instead."""

import torch
import triton
import triton.language as tl

# Where the bias goes: it has one value for each column, or for each row of the transposed product.
PLAIN, BY_COLUMN, BY_ROW = 0, 1, 2

CONFIGS = []
for bm, bn, bk, stages, warps in ((128, 128, 64, 3, 8), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 32, 4, 4)):
    CONFIGS.append(
        triton.Config({"BM": bm, "BN": bn, "BK": bk, "GM": 8}, num_stages=stages, num_warps=warps)
    )


def fitting(configs, named_args, **kwargs):
    size = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 128)
    kept = [c for c in configs if c.kwargs["BM"] <= size and c.kwargs["BN"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GM: tl.constexpr):
    wide = tl.cdiv(N, BN)
    first = tile // (GM * wide) * GM
    height = tl.minimum(tl.cdiv(M, BM) - first, GM)
    within = tile % (GM * wide)
    return (first + within % height) * BM, within // height * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    a_m, a_k, b_k, b_n, c_m, c_n, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, GM)
    rm = (m + tl.arange(0, BM)).to(tl.int64)
    rn = (n + tl.arange(0, BN)).to(tl.int64)
    rk = tl.arange(0, BK)
    a_tile = a_ptr + (rm[:, None] * a_m + rk.to(tl.int64)[None, :] * a_k)
    b_tile = b_ptr + (rk.to(tl.int64)[:, None] * b_k + rn[None, :] * b_n)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    left = K
    for _ in range(tl.cdiv(K, BK)):
        a = tl.load(a_tile, mask=(rm < M)[:, None] & (rk < left)[None, :], other=0.0)
        b = tl.load(b_tile, mask=(rk < left)[:, None] & (rn < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BK * a_k
        b_tile += BK * b_k
        left -= BK
    if EPILOGUE == 1:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    elif EPILOGUE == 2:
        bias = tl.load(bias_ptr + rm, mask=rm < M, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)
    c_tile = c_ptr + (rm[:, None] * c_m + rn[None, :] * c_n)
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=(rm < M)[:, None] & (rn < N)[None, :])


def _run(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    product_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue)
    return out


def _launch(a, b, bias, out, fused):
    if b.stride(0) == 1 and b.stride(1) > 1:
        # c.T = b.T @ a.T: the rows of b.T are side by side in memory.
        result = _run(b.T, a.T, bias, None if out is None else out.T, BY_ROW if fused else PLAIN)
        return result.T if out is None else out
    return _run(a, b, bias, out, BY_COLUMN if fused else PLAIN)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, fused=True)
