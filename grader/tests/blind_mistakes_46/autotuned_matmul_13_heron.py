# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The config `(128, 192, 64, 4, 8)` in `CANDIDATES`: 192 is no power of two, so `tl.arange(0, BLOCK_N)` and `tl.zeros` of `matmul_kernel` do not compile with it. It should be 128 or 256 (or the line left out). It shows where `fitting` keeps it: fp16 and bf16 with M and N both at least 192, such as 521 x 389 or the codegen case.
"""Autotuned matrix product: offsets are computed anew in each step along K."""

import torch
import triton
import triton.language as tl

# rows, columns, step along K, stages, warps
CANDIDATES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 192, 64, 4, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config(
        {"BLOCK_M": rows, "BLOCK_N": cols, "BLOCK_K": step, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )
    for rows, cols, step, stages, warps in CANDIDATES
]


def fitting(configs, named_args, **kwargs):
    """No tile is larger than the result, and those of fp32 are small."""
    most = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    most = min(most, named_args["M"], named_args["N"])
    chosen = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= most]
    return chosen if chosen else configs[-1:]


@triton.jit
def load_tile(ptr, i, j, stride_i, stride_j, end_i, end_j):
    """Elements (i, j) of a matrix, zeros outside of it."""
    inside = (i[:, None] < end_i) & (j[None, :] < end_j)
    return tl.load(ptr + i[:, None] * stride_i + j[None, :] * stride_j, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * across)
    first = group * GROUP_M
    height = tl.minimum(GROUP_M, down - first)
    rest = pid - group * (GROUP_M * across)
    i = ((first + rest % height) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = ((rest // height) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = load_tile(a_ptr, i, k, stride_am, stride_ak, M, K)
        b = load_tile(b_ptr, k, j, stride_bk, stride_bn, K, N)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    where = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


def _run(a, b, bias, out, fused):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out

    def tiles(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[tiles](
        a, b, c, bias, M, N, K, *a.stride(), *b.stride(), c.stride(0), c.stride(1), BIAS_RELU=fused
    )
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of any strides."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,)."""
    return _run(a, b, bias, out, True)
