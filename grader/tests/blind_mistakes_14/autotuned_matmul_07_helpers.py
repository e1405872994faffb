# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `tile_product` converts each partial product to the dtype of the operands (`.to(x.dtype)`) before it is added to `acc`, so in fp16 and bf16 the sum is rounded at every step (and before the bias); it should return the fp32 result of `tl.dot`.
"""Matrix product tile by tile, put together from small functions."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 8),
    _config(64, 128, 32, 4, 8),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
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
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def load_tile(ptr, rows, cols, stride_row, stride_col, n_rows, n_cols):
    """Elements (rows, cols) of a matrix, 0 outside of it."""
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    return tl.load(ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=inside, other=0.0)


@triton.jit
def store_tile(ptr, values, rows, cols, stride_row, stride_col, n_rows, n_cols):
    """The counterpart of load_tile, in the dtype of the matrix."""
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    target = ptr + rows[:, None] * stride_row + cols[None, :] * stride_col
    tl.store(target, values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def tile_product(x, y):
    """x @ y for two tiles, on the tensor cores for 16 bits and with all digits for 32."""
    return tl.dot(x, y, input_precision="ieee").to(x.dtype)


@triton.jit
def bias_relu(acc, bias_ptr, cols, N):
    """Add one bias for each column and clip at 0."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = load_tile(a_ptr, rows, k + lanes, stride_am, stride_ak, M, K)
        b = load_tile(b_ptr, k + lanes, cols, stride_bk, stride_bn, K, N)
        acc += tile_product(a, b)
    if BIAS_RELU:
        acc = bias_relu(acc, bias_ptr, cols, N)
    store_tile(c_ptr, acc, rows, cols, stride_cm, stride_cn, M, N)


def _launch(a, b, bias, out, with_bias):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=with_bias,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, True)
