# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel, epilogue: tl.max(acc + bias[None, :], 0) is the reduction along axis 0, not the larger of two numbers: acc becomes a block of (BLOCK_N,), and the store through a block pointer of (BLOCK_M, BLOCK_N) does not compile (shape mismatch). Shows in every case of matmul_bias_relu; matmul, compiled without these lines, is right. It should be tl.maximum(acc + bias[None, :], 0.0).
"""Matrix product on block pointers: loads, bias and store alike."""

import torch
import triton
import triton.language as tl


def config(block_m, block_n, block_k, num_stages, num_warps):
    tile = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k)
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    config(128, 256, 64, 3, 8),
    config(128, 128, 64, 3, 8),
    config(64, 128, 64, 3, 4),
    config(64, 64, 32, 4, 4),
    config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result, and none above 64 for fp32."""
    size = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    kept = []
    for c in configs:
        if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size:
            kept.append(c)
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Corner of a tile; pairs of rows of tiles are walked together, the last row alone if their number is odd."""
    across = tl.cdiv(N, BLOCK_N)
    pair = tile // (2 * across)
    within = tile % (2 * across)
    alone = 2 * pair + 1 >= tl.cdiv(M, BLOCK_M)
    i = tl.where(alone, 2 * pair, 2 * pair + within % 2)
    j = tl.where(alone, within, within // 2)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    a_block = tl.make_block_ptr(a_ptr, (M, K), (stride_am, stride_ak), (m, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, stride_bn), (0, n), (BLOCK_K, BLOCK_N), (1, 0))
    c_block = tl.make_block_ptr(c_ptr, (M, N), (stride_cm, stride_cn), (m, n), (BLOCK_M, BLOCK_N), (1, 0))

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))

    if BIAS_RELU:
        bias_block = tl.make_block_ptr(bias_ptr, (N,), (1,), (n,), (BLOCK_N,), (0,))
        bias = tl.load(bias_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        acc = tl.max(acc + bias[None, :], 0)

    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
