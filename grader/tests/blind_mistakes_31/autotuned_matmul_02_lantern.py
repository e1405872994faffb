# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the tile of b is loaded as (BLOCK_N, BLOCK_K) and turned with tl.reshape(b, (BLOCK_K, BLOCK_N)), which keeps the order of the elements instead of exchanging the axes, so b is scrambled. Wrong in every case of both functions except where N = K = 1. It should be tl.trans(b).
"""C = A B, where the tile of B is fetched row by row of its transpose, as a weight is stored."""

import torch
import triton
import triton.language as tl

SHAPES = (
    # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 32, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    smallest_side = min(named_args["M"], named_args["N"])
    most = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    chosen = []
    for config in configs:
        side = max(config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"])
        if side <= most and side <= smallest_side:
            chosen.append(config)
    return chosen if chosen else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Grouped order: a few rows of tiles at a time, column by column."""
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    group = tile // (GROUP_M * wide)
    rest = tile - group * GROUP_M * wide
    size = tl.minimum(high - group * GROUP_M, GROUP_M)
    row = group * GROUP_M + rest % size
    column = rest // size
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    j = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    l = tl.arange(0, BLOCK_K).to(tl.int64)
    a_rows = a_ptr + i[:, None] * stride_am
    b_columns = b_ptr + j[:, None] * stride_bn
    has_row = i[:, None] < M
    has_column = j[:, None] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        depth = (start + l)[None, :]
        a = tl.load(a_rows + depth * stride_ak, mask=has_row & (depth < K), other=0.0)
        b = tl.load(b_columns + depth * stride_bk, mask=has_column & (depth < K), other=0.0)
        acc = tl.dot(a, tl.reshape(b, (BLOCK_K, BLOCK_N)), acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=has_row & (j[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, True)
