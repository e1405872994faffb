# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `matmul_kernel`, `acc = tl.where(acc > 0.0, acc + bias.to(tl.float32)[None, :], 0.0)` tests the sum before the bias; it should be `tl.maximum(acc + bias, 0.0)`. Wrong in matmul_bias_relu everywhere, where bias and sum differ in sign or the sum is negative. (2) `c_ptrs = block_at(c_ptr, m, n, stride_cm, stride_cn, BLOCK_M, BLOCK_N)` multiplies int32 rows and columns by the strides; it should pass `m.to(tl.int64), n.to(tl.int64)` as for a and b. Shows in both functions, so in matmul by itself, only where `out` reaches beyond 2^31 elements with strides that are int32 themselves.
"""Tiled matrix product with a small helper for the address of every tile."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 4}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and column of a tile. GROUP_N columns of tiles are walked row by row."""
    in_group = GROUP_N * tl.cdiv(M, BLOCK_M)
    first = tile // in_group * GROUP_N
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP_N)
    within = tile % in_group
    return within // width * BLOCK_M, (first + within % width) * BLOCK_N


@triton.jit
def block_at(ptr, row, col, stride_row, stride_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Pointers to the ROWS x COLS block whose first element is (row, col)."""
    rows = row + tl.arange(0, ROWS)
    cols = col + tl.arange(0, COLS)
    return ptr + rows[:, None] * stride_row + cols[None, :] * stride_col


@triton.jit
def below(first, limit, SIZE: tl.constexpr):
    """Which of the SIZE numbers from first on are below limit."""
    return first + tl.arange(0, SIZE) < limit


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    row_exists = below(m, M, BLOCK_M)[:, None]
    col_exists = below(n, N, BLOCK_N)[None, :]
    a_ptrs = block_at(a_ptr, m.to(tl.int64), 0, stride_am, stride_ak, BLOCK_M, BLOCK_K)
    b_ptrs = block_at(b_ptr, 0, n.to(tl.int64), stride_bk, stride_bn, BLOCK_K, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        k_exists = below(k, K, BLOCK_K)
        a = tl.load(a_ptrs, mask=row_exists & k_exists[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_exists[:, None] & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + n + tl.arange(0, BLOCK_N), mask=below(n, N, BLOCK_N), other=0.0)
        acc = tl.where(acc > 0.0, acc + bias.to(tl.float32)[None, :], 0.0)
    c_ptrs = block_at(c_ptr, m, n, stride_cm, stride_cn, BLOCK_M, BLOCK_N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
