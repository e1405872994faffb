# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel every partial sum begins with `part = start`, which holds the bias, so matmul_bias_relu adds the bias once for each span of 4 * BLOCK_K along K, not once: wrong where K > 4 * BLOCK_K. Only the total should begin with start, and part with zeros; matmul is right.
"""Matrix product with sums in two levels, autotuned, and the same with bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Two sums and the start value are alive: tiles of 128 x 128 need 8 warps here.
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 8),
    _config(64, 128, 32, 3, 8),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_m, n_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * n_n)
    pos = tile - group * GROUP_M * n_n
    height = tl.minimum(n_m - group * GROUP_M, GROUP_M)
    tile_row = group * GROUP_M + pos % height
    tile_col = pos // height
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias).

    For a long K one fp32 sum collects many rounding errors. So four steps make a partial sum, and the
    partial sums are added: pairwise summation, in a small way.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    row_exists = rows < M
    col_exists = cols < N

    # What a sum begins with: 0, or the bias of its column.
    start = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        start += tl.load(bias_ptr + cols, mask=col_exists, other=0.0).to(tl.float32)

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, 4 * BLOCK_K):
        part = start
        for j in tl.static_range(4):
            ks = k0 + j * BLOCK_K + lanes
            a = tl.load(
                a_ptr + rows * stride_am + ks[None, :] * stride_ak,
                mask=row_exists & (ks[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_ptr + ks[:, None] * stride_bk + cols * stride_bn,
                mask=(ks[:, None] < K) & col_exists,
                other=0.0,
            )
            part = tl.dot(a, b, part, input_precision="ieee")
        total += part

    if BIAS_RELU:
        total = tl.maximum(total, 0.0)
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn,
        total.to(c_ptr.dtype.element_ty),
        mask=row_exists & col_exists,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[lambda meta: (tiles(meta),)](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
