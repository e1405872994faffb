# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel: acc = tl.zeros(...) stands before the loop over tiles instead of inside it, so the second and later tiles of a program start from the sums of its earlier ones; wrong only where the result has more tiles than the launch has programs (multiprocessors on a GPU, 4 elsewhere), and there in the tiles numbered from that count on; acc should be set to zero at the start of each tile
"""A persistent matrix product: as many programs as multiprocessors walk over all tiles of the result."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """Tile sizes, depth of the pipeline, warps of a program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for fp32, and none that is larger than the result."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    top = (tile // per_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    within = tile % per_group
    return (top + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program p computes the tiles p, p + programs, p + 2 programs, ..."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    row_lanes = tl.arange(0, BLOCK_M)
    col_lanes = tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + row_lanes).to(tl.int64)
        cols = (n + col_lanes).to(tl.int64)
        row_exists = (rows < M)[:, None]
        col_exists = (cols < N)[None, :]
        a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        for k in range(0, K, BLOCK_K):
            x = tl.load(a_at, mask=row_exists & (ks[None, :] < K - k), other=0.0)
            y = tl.load(b_at, mask=(ks[:, None] < K - k) & col_exists, other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
            a_at += BLOCK_K * stride_ak
            b_at += BLOCK_K * stride_bk

        result = acc
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            result = tl.maximum(acc + bias[None, :], 0.0)
        c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_at, result.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _programs(x):
    """One program for each multiprocessor; a handful where there is no GPU."""
    if x.is_cuda:
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return 4


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    most = _programs(a)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (min(most, tiles(meta)),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; the result goes to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
