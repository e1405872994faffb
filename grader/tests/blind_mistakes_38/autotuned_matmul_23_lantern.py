# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel: the loop fetches the next tiles by hand, but makes them the current ones (a, b = a_next, b_next) before tl.dot instead of after it. So the first block of K, fetched before the loop, is never multiplied, and the last step multiplies zeros. Every result of both functions lacks the first BLOCK_K products (all zero, or relu(bias), where K <= BLOCK_K). The dot must come before the exchange.
"""Matrix product, one tile for each program, with the next step of K fetched ahead by hand."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 32, 2, 8),
    _config(128, 64, 32, 2, 4),
    _config(64, 128, 32, 2, 4),
    _config(64, 64, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; 64 at most for fp32."""
    m, n = named_args["M"], named_args["N"]
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    kept = []
    for config in configs:
        if max(config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]) <= min(widest, m, n):
            kept.append(config)
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    first = group * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    rest = tile % (GROUP_M * across)
    return (first + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.jit
def fetch(a_ptrs, b_ptrs, row_ok, col_ok, ks, left):
    """One tile of a and one of b, with zeros where less than a whole block of K is left."""
    a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < left), other=0.0)
    b = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_ok, other=0.0)
    return a, b


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a, b = fetch(a_ptrs, b_ptrs, row_ok, col_ok, ks, K)
    for k in range(0, K, BLOCK_K):
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
        a_next, b_next = fetch(a_ptrs, b_ptrs, row_ok, col_ok, ks, K - k - BLOCK_K)
        a, b = a_next, b_next
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
