# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel: each turn of the loop loads the next pair of tiles and multiplies the one before, but the pair that is left after the loop is never multiplied, so the last block of K is missing from every sum, in every case (all zeros before the bias where K <= BLOCK_K); should have acc = tl.dot(x, y, acc, input_precision="ieee") once more after the loop
"""Matrix product with loads one step ahead of the products."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=4)
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 32, 3, 8),
    _config(256, 128, 32, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    block = GROUP_M * wide
    start = tile // block * GROUP_M
    count = min(high - start, GROUP_M)
    index = tile % block
    return (start + index % count) * BLOCK_M, index // count * BLOCK_N


@triton.jit
def fetch(at, exists, ks, left):
    """One tile of an operand; `ks` are its numbers along K, in the shape that broadcasts."""
    return tl.load(at, mask=exists & (ks < left), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    across = tl.arange(0, BLOCK_K)[None, :]
    down = tl.arange(0, BLOCK_K)[:, None]
    a_at = a_ptr + i * stride_am + across * stride_ak
    b_at = b_ptr + down * stride_bk + j * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    x = fetch(a_at, i < M, across, K)
    y = fetch(b_at, j < N, down, K)
    for k in range(BLOCK_K, K, BLOCK_K):
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
        # The loads of this step do not wait for the product of the one before.
        next_x = fetch(a_at, i < M, across, K - k)
        next_y = fetch(b_at, j < N, down, K - k)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x = next_x
        y = next_y

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_at = c_ptr + i * stride_cm + j * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    result = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, result, bias, M, N, K, *a.stride(), *b.stride(), *result.stride(), BIAS_RELU=bias_relu
    )
    return result


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N)."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) with the bias added to the fp32 sums."""
    return _launch(a, b, bias, out, bias_relu=True)
