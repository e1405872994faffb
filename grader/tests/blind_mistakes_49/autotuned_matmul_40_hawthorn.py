# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | `_product`: where a has its columns together (`a.stride(0) == 1 and a.stride(1) > 1`) and no out is given, `result = _run(b.T, a.T, bias, flipped, ...).T` is the transposed view of a new (N, M) matrix, with strides (1, M): the README asks for a new contiguous (M, N) matrix. It should allocate (M, N) first and pass `out.T`. Values are right; shows without out for transposed a, in both functions.
"""Matrix product that turns itself around where the columns of a lie together in memory."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result can fill, and 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def along(base, ids, stride):
    """Addresses of the ids, which may lie beyond 2^31 elements."""
    return base + ids.to(tl.int64) * stride


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b; EPILOGUE 1 adds a bias for each column and clamps at 0, EPILOGUE 2 one for each row."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows < M
    col_ok = cols < N
    a_ptrs = along(a_ptr, rows, stride_am)[:, None] + ks[None, :] * stride_ak
    b_ptrs = along(b_ptr, cols, stride_bn)[None, :] + ks[:, None] * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok[:, None] & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & col_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if EPILOGUE == 1:
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    elif EPILOGUE == 2:
        bias = tl.load(bias_ptr + rows, mask=row_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)
    c_ptrs = along(c_ptr, rows, stride_cm)[:, None] + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok[:, None] & col_ok[None, :])


def _run(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        EPILOGUE=epilogue,
    )  # fmt: skip
    return out


def _product(a, b, bias, out, bias_relu):
    """Where the columns of a lie together, (a @ b).T = b.T @ a.T has its rows together."""
    if a.stride(0) == 1 and a.stride(1) > 1:
        flipped = None if out is None else out.T
        result = _run(b.T, a.T, bias, flipped, 2 if bias_relu else 0).T
        return result if out is None else out
    return _run(a, b, bias, out, 1 if bias_relu else 0)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides, with fp32 sums and one rounding."""
    return _product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias and ReLU in the same kernel."""
    return _product(a, b, bias, out, bias_relu=True)
