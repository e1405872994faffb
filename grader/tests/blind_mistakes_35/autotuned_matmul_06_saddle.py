# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In sum_kernel acc starts from the bias (`tl.zeros(...) + bias[None, :]` under `if HAS_BIAS`) in each of the SPLIT_K programs that share a tile, so the atomic additions add the bias SPLIT_K times (2 or 4). Shows in every case of matmul_bias_relu whatever K is (matmul is right); only the program with tl.program_id(1) == 0 should start from the bias, or finish_kernel should add it once.
"""Matrix product with K split among programs: sums meet in an fp32 workspace, a second kernel finishes them."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, split_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT_K": split_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 2, 3, 8),
    _config(128, 128, 64, 2, 3, 8),
    _config(64, 128, 64, 4, 3, 4),
    _config(64, 64, 64, 4, 3, 4),
    _config(32, 32, 32, 4, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    across = tl.cdiv(N, BLOCK_N)
    return tile // across * BLOCK_M, tile % across * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def sum_kernel(
    a_ptr, b_ptr, sum_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Add every SPLIT_K-th step along K of one tile to sum, which is (M, N), fp32, contiguous and 0 at first."""
    m, n = place(tl.program_id(axis=0), N, BLOCK_M, BLOCK_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    if HAS_BIAS:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32) + bias[None, :]
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)

    for k in range(tl.program_id(axis=1) * BLOCK_K, K, SPLIT_K * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_at, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_at, mask=(ks[:, None] < K) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    tl.atomic_add(sum_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok, sem="relaxed")


@triton.jit
def finish_kernel(sum_ptr, c_ptr, total, N, stride_cm, stride_cn, RELU: tl.constexpr, BLOCK: tl.constexpr):
    """c = sum, or relu(sum), in the dtype of c."""
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = i < total
    x = tl.load(sum_ptr + i, mask=exists, other=0.0)
    if RELU:
        x = tl.maximum(x, 0.0)
    at = c_ptr + (i // N) * stride_cm + (i % N) * stride_cn
    tl.store(at, x.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (tiles, meta["SPLIT_K"])

    sum_kernel[grid](
        a, b, sums, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), HAS_BIAS=bias_relu
    )
    finish_kernel[(triton.cdiv(M * N, 1024),)](
        sums, out, M * N, N, out.stride(0), out.stride(1), RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
