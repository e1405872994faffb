# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel, store: c_tile = ... + n and c_tile + ... + lane_n[None, :] take the column stride of out for 1 and leave stride_cn out; shows in both functions where out is transposed or every second column of a wider matrix; columns must be multiplied by stride_cn. (2) matmul_kernel, epilogue: tl.load(bias_ptr + lane_n, ...) leaves out the first column n of the tile, so every tile gets the bias of columns 0 to BLOCK_N - 1; shows in matmul_bias_relu wherever N is above BLOCK_N; it should be bias_ptr + n + lane_n.
"""Matrix product: each program moves its pointers to the corner of its tile, then works with lanes."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Drops tiles that reach beyond the result, and large ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    rows_of_tiles = tl.cdiv(M, BLOCK_M)
    columns_of_tiles = tl.cdiv(N, BLOCK_N)
    full_group = GROUP_M * columns_of_tiles
    start = tile // full_group * GROUP_M
    height = tl.minimum(rows_of_tiles - start, GROUP_M)
    position = tile % full_group
    return (start + position % height) * BLOCK_M, position // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    m = m.to(tl.int64)
    n = n.to(tl.int64)
    lane_m = tl.arange(0, BLOCK_M).to(tl.int64)
    lane_n = tl.arange(0, BLOCK_N).to(tl.int64)
    lane_k = tl.arange(0, BLOCK_K)
    row_ok = lane_m < M - m
    col_ok = lane_n < N - n

    a_tile = a_ptr + m * stride_am + lane_m[:, None] * stride_am + lane_k[None, :] * stride_ak
    b_tile = b_ptr + n * stride_bn + lane_k[:, None] * stride_bk + lane_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        k_ok = lane_k < K - k
        x = tl.load(a_tile, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
        y = tl.load(b_tile, mask=k_ok[:, None] & col_ok[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + lane_n, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + m * stride_cm + n
    tl.store(
        c_tile + lane_m[:, None] * stride_cm + lane_n[None, :],
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok[:, None] & col_ok[None, :],
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), summed in fp32 and rounded once."""
    return _launch(a, b, bias, out, bias_relu=True)
