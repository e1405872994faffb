# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, `odd = tl.dot(a1, b1, even, input_precision="ieee")` adds to the wrong accumulator; it should be `odd`. The result holds all even blocks of K twice and of the odd blocks only the last; for K <= BLOCK_K it is twice the sum. Both functions, all cases.
"""Matrix product with two tiles along K a step, each with sums of its own."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Two blocks of sums: 128 x 128 with 8 warps are 2 * 64 numbers a thread. A step holds 2 * BLOCK_K.
CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 8),
    _config(64, 128, 32, 4, 8),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    first = (tile // (GROUP_M * columns)) * GROUP_M
    height = min(rows - first, GROUP_M)
    within = tile % (GROUP_M * columns)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def fetch(base, i, j, stride_i, stride_j, end_i, end_j):
    """Elements (i, j) of a matrix, 0 outside."""
    inside = (i < end_i)[:, None] & (j < end_j)[None, :]
    offsets = i.to(tl.int64)[:, None] * stride_i + j.to(tl.int64)[None, :] * stride_j
    return tl.load(base + offsets, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    columns = n + tl.arange(0, BLOCK_N)
    even = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    odd = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        k0 = k + tl.arange(0, BLOCK_K)
        k1 = k0 + BLOCK_K
        a0 = fetch(a_ptr, rows, k0, stride_am, stride_ak, M, K)
        b0 = fetch(b_ptr, k0, columns, stride_bk, stride_bn, K, N)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        a1 = fetch(a_ptr, rows, k1, stride_am, stride_ak, M, K)
        b1 = fetch(b_ptr, k1, columns, stride_bk, stride_bn, K, N)
        odd = tl.dot(a1, b1, even, input_precision="ieee")
    acc = even + odd

    if BIAS_RELU:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    offsets = rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c_ptr + offsets, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
