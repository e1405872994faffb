# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `product`, `acc = tl.dot(a0, b1, acc, input_precision="ieee")` multiplies this step's tile of a with the next step's tile of b; it should be `tl.dot(a0, b0, acc, ...)`. Wrong in all cases of both functions: the product is all 0 where K is one step, else each block of a meets the following block of b.
"""Matrix product whose loop fetches the tiles of the next step before it multiplies those of this one."""

import torch
import triton
import triton.language as tl


def _candidate(rows, cols, depth, stages, warps):
    return triton.Config(
        {"TILE_M": rows, "TILE_N": cols, "TILE_K": depth}, num_stages=stages, num_warps=warps
    )


CANDIDATES = [
    _candidate(128, 128, 64, 3, 8),
    _candidate(128, 128, 32, 3, 8),
    _candidate(128, 64, 64, 3, 8),
    _candidate(64, 128, 64, 3, 8),
    _candidate(64, 64, 32, 3, 4),
]


def sensible(configs, named_args, **kwargs):
    """Leave out tiles that are larger than the result; fp32 takes 64 x 64."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    m, n = named_args["M"], named_args["N"]
    return [c for c in configs if c.kwargs["TILE_M"] <= m and c.kwargs["TILE_N"] <= n] or configs[-1:]


@triton.jit
def fetch(a_ptrs, b_ptrs, row_ok, col_ok, ks, left):
    """The tiles of one step, zeros where `left` columns of a (rows of b) are used up."""
    a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < left), other=0.0)
    b = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < left), other=0.0)
    return a, b


@triton.autotune(
    configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": sensible}
)
@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    a_row, a_col, b_row, b_col, c_row, c_col,
    WITH_BIAS: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """One TILE_M x TILE_N tile of c for each program; the tiles are swizzled in groups of eight rows."""
    down, across = tl.cdiv(M, TILE_M), tl.cdiv(N, TILE_N)
    pid = tl.program_id(0)
    i, j = tl.swizzle2d(pid // across, pid % across, down, across, 8)

    rows = i.to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    cols = j.to(tl.int64) * TILE_N + tl.arange(0, TILE_N)
    ks = tl.arange(0, TILE_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * a_row + ks[None, :] * a_col
    b_ptrs = b_ptr + ks[:, None] * b_row + cols[None, :] * b_col

    acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    a0, b0 = fetch(a_ptrs, b_ptrs, row_ok, col_ok, ks, K)
    for k in range(0, K, TILE_K):
        a_ptrs += TILE_K * a_col
        b_ptrs += TILE_K * b_row
        a1, b1 = fetch(a_ptrs, b_ptrs, row_ok, col_ok, ks, K - k - TILE_K)
        acc = tl.dot(a0, b1, acc, input_precision="ieee")
        a0, b0 = a1, b1

    if WITH_BIAS:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    c_ptrs = c_ptr + rows[:, None] * c_row + cols[None, :] * c_col
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _run(a, b, bias, out, with_bias):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["TILE_M"]) * triton.cdiv(N, meta["TILE_N"]),)  # noqa: E731
    product[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), WITH_BIAS=with_bias)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32, for matrices of any strides."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the bias one value for each column."""
    return _run(a, b, bias, out, True)
