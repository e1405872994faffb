# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the loop along K loads the next blocks ahead but multiplies them instead of the current ones: `tl.dot(next_a, next_b, acc)` should be `tl.dot(a, b, acc)`. The first block of K is never in the sum (the last product is of masked zeros), so every case is wrong, and for K <= BLOCK_K all sums are 0 (matmul_bias_relu then gives relu(bias)).
"""Tiled product whose loop along K loads one block ahead."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 2, 8),
    _config(128, 128, 32, 2, 8),
    _config(128, 64, 64, 2, 8),
    _config(64, 64, 32, 2, 4),
    _config(32, 32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    limit = min(widest, max(named_args["M"], named_args["N"]))
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def fetch(base, outer, outer_exists, k, ks, K, stride_k):
    """One block of an operand: `outer` holds the offsets of its rows or columns, `ks` its places along K."""
    at = k + ks
    return tl.load(base + outer + at * stride_k, mask=outer_exists & (at < K), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    row_exists = rows < M
    col_exists = cols < N
    along_a = tl.arange(0, BLOCK_K).to(tl.int64)[None, :]
    along_b = tl.arange(0, BLOCK_K).to(tl.int64)[:, None]
    a_rows = rows * stride_am
    b_cols = cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a = fetch(a_ptr, a_rows, row_exists, 0, along_a, K, stride_ak)
    b = fetch(b_ptr, b_cols, col_exists, 0, along_b, K, stride_bk)
    for k in range(0, K, BLOCK_K):
        next_a = fetch(a_ptr, a_rows, row_exists, k + BLOCK_K, along_a, K, stride_ak)
        next_b = fetch(b_ptr, b_cols, col_exists, k + BLOCK_K, along_b, K, stride_bk)
        acc = tl.dot(next_a, next_b, acc, input_precision="ieee")
        a = next_a
        b = next_b

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=col_exists, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias of shape (N,)."""
    return _launch(a, b, bias, out, bias_relu=True)
