# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | tl.load of a block pointer gets mask= and other=, which Triton refuses with a ValueError (boundary_check=(0, 1) and padding_option="zero" must be used, as the store does); shows in every case
"""Matmul on block pointers: tl.make_block_ptr knows shape and strides, tl.advance moves it along K."""

import torch
import triton
import triton.language as tl

_SHAPES = [(128, 128, 64, 3, 8), (128, 64, 64, 3, 4), (64, 64, 64, 3, 4), (32, 32, 32, 3, 4)]
CONFIGS = [
    triton.Config({"BLOCK_M": shape[0], "BLOCK_N": shape[1], "BLOCK_K": shape[2]}, num_stages=shape[3], num_warps=shape[4])
    for shape in _SHAPES
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result; at most 64 x 64 in fp32."""
    fp32 = named_args["a_ptr"].dtype == torch.float32
    size = min(named_args["M"], named_args["N"], 64 if fp32 else 128)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // tiles_n) * BLOCK_M
    n = (tl.program_id(0) % tiles_n) * BLOCK_N

    a_block = tl.make_block_ptr(
        base=a_ptr, shape=(M, K), strides=(stride_am, stride_ak),
        offsets=(m, 0), block_shape=(BLOCK_M, BLOCK_K), order=(1, 0),
    )  # fmt: skip
    b_block = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(stride_bk, stride_bn),
        offsets=(0, n), block_shape=(BLOCK_K, BLOCK_N), order=(1, 0),
    )  # fmt: skip
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        k_mask = ks < K - k
        a = tl.load(a_block, mask=(rows < M)[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_block, mask=k_mask[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_block = tl.make_block_ptr(
        base=c_ptr, shape=(M, N), strides=(stride_cm, stride_cn),
        offsets=(m, n), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0),
    )  # fmt: skip
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides, which are in the block pointers."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
