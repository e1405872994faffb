# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the second tile of b, y1, is loaded with `even[:, None] * stride_bk` (mask on odd), so odd columns of a meet even rows of b; every case with K > 1 is wrong. It should be `odd[:, None] * stride_bk`.
"""Matrix product with two running sums, one over even and one over odd k."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# BLOCK_K counts the k of one of the two sums; a step takes twice as many
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 8),
    _config(64, 128, 32, 3, 8),
    _config(64, 64, 16, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    first = tile // (GROUP_M * across) * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile % (GROUP_M * across)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn
    inside = (rows < M) & (cols < N)

    # two chains of dependent products instead of one
    sum0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    sum1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        even = (k + 2 * tl.arange(0, BLOCK_K)).to(tl.int64)
        odd = even + 1
        x0 = tl.load(a_rows + even[None, :] * stride_ak, mask=(rows < M) & (even[None, :] < K), other=0.0)
        y0 = tl.load(b_cols + even[:, None] * stride_bk, mask=(cols < N) & (even[:, None] < K), other=0.0)
        x1 = tl.load(a_rows + odd[None, :] * stride_ak, mask=(rows < M) & (odd[None, :] < K), other=0.0)
        y1 = tl.load(b_cols + even[:, None] * stride_bk, mask=(cols < N) & (odd[:, None] < K), other=0.0)
        sum0 = tl.dot(x0, y0, sum0, input_precision="ieee")
        sum1 = tl.dot(x1, y1, sum1, input_precision="ieee")
    acc = sum0 + sum1

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, bias_relu=True)
