# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | rows_by_rows_kernel loads a tile of b as (BN, BK) and turns it with tl.reshape(bt, (BK, BN)), which keeps the order of the elements instead of exchanging the axes: the dot gets a scrambled tile. Both functions are wrong in every case but K = N = 1. It should be tl.trans(bt).
"""Matrix product that reads b the way a linear layer keeps its weights: a row for each output column."""

import torch
import triton
import triton.language as tl


def options():
    for bm, bn, bk, stages, warps in [
        (128, 256, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (128, 64, 64, 4, 4),
        (64, 64, 64, 3, 4),
        (32, 32, 32, 2, 4),
    ]:
        yield triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)


ALL = list(options())


def select(configs, named, **meta):
    largest = 32 if named["a_ptr"].dtype == torch.float32 else 256
    edge = min(largest, named["M"], named["N"])
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= edge] or [configs[-1]]


@triton.autotune(configs=ALL, key=["M", "N", "K"], prune_configs_by={"early_config_prune": select})
@triton.jit
def rows_by_rows_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, a_row, a_col, b_row, b_col, c_row, c_col,
    BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    # Four columns of tiles at a time, downwards.
    down = tl.cdiv(M, BM)
    strip = pid // (4 * down)
    width = tl.minimum(tl.cdiv(N, BN) - 4 * strip, 4)
    at = pid % (4 * down)
    m = ((at // width) * BM + tl.arange(0, BM)).to(tl.int64)
    n = ((4 * strip + at % width) * BN + tl.arange(0, BN)).to(tl.int64)
    m_ok = m < M
    n_ok = n < N

    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = (step * BK + tl.arange(0, BK)).to(tl.int64)
        k_ok = (k < K)[None, :]
        a = tl.load(a_ptr + m[:, None] * a_row + k[None, :] * a_col, mask=m_ok[:, None] & k_ok, other=0.0)
        bt = tl.load(b_ptr + n[:, None] * b_col + k[None, :] * b_row, mask=n_ok[:, None] & k_ok, other=0.0)
        acc = tl.dot(a, tl.reshape(bt, (BK, BN)), acc, input_precision="ieee")

    if BIAS:
        acc += tl.load(bias_ptr + n, mask=n_ok, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * c_row + n[None, :] * c_col, c, mask=m_ok[:, None] & n_ok[None, :])


def _grid_for(m, n):
    return lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    m, k = a.shape
    n = b.size(1)
    if out is None:
        out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    rows_by_rows_kernel[_grid_for(m, n)](
        a, b, a, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), BIAS=False
    )
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    m, k = a.shape
    n = b.size(1)
    if out is None:
        out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    rows_by_rows_kernel[_grid_for(m, n)](
        a, b, bias, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), BIAS=True
    )
    return out
