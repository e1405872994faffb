# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | In `_new`, the result is allocated by `torch.empty_strided((M, N), (triton.cdiv(N, lanes) * lanes, 1), ...)`, with padded rows; it should be `torch.empty((M, N), ...)`, as a new matrix must be contiguous. Shows without `out` where N is not a multiple of 8 (fp32: 4) and M is larger than 1; the numbers are right.
"""Matrix product computed as its transpose, c' = b' a', tile by tile, autotuned, with an optional bias and ReLU."""

import torch
import triton
import triton.language as tl

# Tiles of c' have BLOCK_N rows and BLOCK_M columns.
CONFIGS = [
    triton.Config({"BLOCK_N": 128, "BLOCK_M": 128, "BLOCK_K": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_N": 128, "BLOCK_M": 256, "BLOCK_K": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_N": 128, "BLOCK_M": 64, "BLOCK_K": 64, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_N": 64, "BLOCK_M": 64, "BLOCK_K": 32, "GROUP": 8}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, N, M, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of one of the tiles of c', an N x M matrix."""
    in_group = GROUP * tl.cdiv(M, BLOCK_M)
    first = tile // in_group * GROUP
    height = tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP)
    within = tile % in_group
    return (first + within % height) * BLOCK_N, (within // height) * BLOCK_M


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of c' = b' a'; column j of b and of c is row j of b' and of c'."""
    n, m = place(tl.program_id(axis=0), N, M, BLOCK_N, BLOCK_M, GROUP)
    js = (n.to(tl.int64) + tl.arange(0, BLOCK_N))[:, None]
    rows = (m.to(tl.int64) + tl.arange(0, BLOCK_M))[None, :]
    ks = tl.arange(0, BLOCK_K)
    left_ptrs = b_ptr + js * stride_bn + ks[None, :] * stride_bk
    right_ptrs = a_ptr + ks[:, None] * stride_ak + rows * stride_am
    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(left_ptrs, mask=(js < N) & (ks[None, :] < K - k), other=0.0)
        right = tl.load(right_ptrs, mask=(ks[:, None] < K - k) & (rows < M), other=0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
        left_ptrs += BLOCK_K * stride_bk
        right_ptrs += BLOCK_K * stride_ak
    if BIAS_RELU:
        bias = tl.load(bias_ptr + js, mask=js < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias, 0.0)
    c_ptrs = c_ptr + rows * stride_cm + js * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=(js < N) & (rows < M))


def _new(M, N, like):
    """An (M, N) matrix whose rows begin at multiples of 16 bytes, so that stores can be wide."""
    lanes = 16 // like.element_size()
    return torch.empty_strided((M, N), (triton.cdiv(N, lanes) * lanes, 1), device=like.device, dtype=like.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = _new(M, N, a) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
