# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | `_result`: `torch.empty_strided((M, N), (pitch, 1), ...)` with `pitch` rounded up to 16 bytes; it should be a contiguous `torch.empty((M, N), ...)`. Without `out` and with M > 1 and N no multiple of 16 bytes (4 fp32 or 8 16-bit numbers) both functions return right numbers in a matrix that is not contiguous.
"""Matrix product on block pointers, autotuned, with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

TILES = (
    # rows, columns, step along K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["c_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    rows_of_tiles = tl.cdiv(M, BLOCK_M)
    cols_of_tiles = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * cols_of_tiles)
    within = tile % (GROUP_M * cols_of_tiles)
    height = tl.minimum(rows_of_tiles - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a block pointer computes its offsets in 64 bits."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    a_block = tl.make_block_ptr(
        a_ptr, shape=(M, K), strides=(stride_am, stride_ak), offsets=(m, 0),
        block_shape=(BLOCK_M, BLOCK_K), order=(1, 0),
    )  # fmt: skip
    b_block = tl.make_block_ptr(
        b_ptr, shape=(K, N), strides=(stride_bk, stride_bn), offsets=(0, n),
        block_shape=(BLOCK_K, BLOCK_N), order=(1, 0),
    )  # fmt: skip
    c_block = tl.make_block_ptr(
        c_ptr, shape=(M, N), strides=(stride_cm, stride_cn), offsets=(m, n),
        block_shape=(BLOCK_M, BLOCK_N), order=(1, 0),
    )  # fmt: skip

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))

    if BIAS_RELU:
        cols = n + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _result(a, M, N):
    """A new (M, N) matrix of the dtype of a, stored row by row, for stores of whole vectors."""
    vector = 16 // a.element_size()
    pitch = triton.cdiv(N, vector) * vector
    return torch.empty_strided((M, N), (pitch, 1), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = _result(a, M, N)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
