# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel cuts the finished tile into halves by tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2))): that gives the even and the odd columns, but they are stored as the left and the right half, so the columns of every tile are shuffled in both functions, in every case with more than one column; it should be tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), then tl.permute(..., (0, 2, 1)), then tl.split
"""A persistent matrix product: a few programs walk over all tiles, and store each in two halves."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def store_part(c_ptr, part, rows, cols, M, N, stride_cm, stride_cn):
    spots = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(spots, part.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns the tiles pid, pid + programs, ..."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = m + tl.arange(0, BLOCK_M)
        cols = n + tl.arange(0, BLOCK_N)
        a_rows = a_ptr + rows.to(tl.int64)[:, None] * stride_am
        b_cols = b_ptr + cols.to(tl.int64)[None, :] * stride_bn

        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = k + tl.arange(0, BLOCK_K)
            far = ks.to(tl.int64)
            a = tl.load(
                a_rows + far[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0
            )
            b = tl.load(
                b_cols + far[:, None] * stride_bk, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0
            )
            acc = tl.dot(a, b, acc, input_precision="ieee")

        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)

        # Half a tile at a time: the conversion needs fewer registers.
        left, right = tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2)))
        half = n + tl.arange(0, BLOCK_N // 2)
        store_part(c_ptr, left, rows, half, M, N, stride_cm, stride_cn)
        store_part(c_ptr, right, rows, half + BLOCK_N // 2, M, N, stride_cm, stride_cn)


def _programs(x):
    """One for each SM; a handful where there is no GPU."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 6


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    most = _programs(a)
    matmul_kernel[lambda meta: (min(most, tiles(meta)),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
