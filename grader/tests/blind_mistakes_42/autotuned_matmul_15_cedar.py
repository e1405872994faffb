# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_bias_relu`, `sums = _empty(a, b)` holds the sums in the dtype of a (`dtype=a.dtype` in `_empty`) between the two launches; it should be float32. The sum is rounded before the bias is added, and once more after: a few elements differ in fp16 and bf16, at once in the cases of whole numbers; fp32 and `matmul` are right.
"""Matrix product, autotuned; bias and ReLU are a second launch over the sums."""

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
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def sums_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b in the dtype of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    k_row = tl.arange(0, BLOCK_K)[None, :]
    k_col = tl.arange(0, BLOCK_K)[:, None]
    a_ptrs = a_ptr + i * stride_am + k_row * stride_ak
    b_ptrs = b_ptr + k_col * stride_bk + j * stride_bn
    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(i < M) & (k_row < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(k_col < K - k) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


@triton.jit
def bias_relu_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, stride_sm, stride_sn, stride_cm, stride_cn,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """c = relu(sums + bias), computed in fp32."""
    across = tl.cdiv(N, COLUMNS)
    pid = tl.program_id(axis=0)
    i = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    columns = pid % across * COLUMNS + tl.arange(0, COLUMNS)
    j = columns.to(tl.int64)[None, :]
    inside = (i < M) & (j < N)
    bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    sums = tl.load(sums_ptr + i * stride_sm + j * stride_sn, mask=inside, other=0.0).to(tl.float32)
    result = tl.maximum(sums + bias[None, :], 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, result.to(c_ptr.dtype.element_ty), mask=inside)


def _sums(a, b, c):
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    sums_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())


def _empty(a, b):
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    out = _empty(a, b) if out is None else out
    _sums(a, b, out)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the sums go through memory of their own."""
    out = _empty(a, b) if out is None else out
    sums = _empty(a, b)
    _sums(a, b, sums)
    M, N = out.shape
    rows, columns = 16, 128
    bias_relu_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, columns),)](
        sums, bias, out, M, N, *sums.stride(), *out.stride(), ROWS=rows, COLUMNS=columns
    )
    return out
