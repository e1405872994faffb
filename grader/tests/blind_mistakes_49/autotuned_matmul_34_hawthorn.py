# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `my_tiles` returns `pid * each` as the first tile; it should be `pid * each + tl.minimum(pid, extra)`, since the programs before have one tile more each. Where there are more tiles than 108 programs and 108 does not divide their number, shares overlap and the last `extra` tiles are never written (521 x 389 with tiles of 64 x 32, 1031 x 1027 and 1024 x 1024 with small tiles, 8192 with any); fewer tiles are right.
"""Persistent matrix product: as many programs as there are processors, each with a run of neighbouring tiles."""

import torch
import triton
import triton.language as tl

# The processors of an A100; a larger GPU has a few idle ones, a smaller one takes the programs in turns.
PROGRAMS = 108


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(64, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result can fill; for fp32 the small ones."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, column by column inside of a group of GROUP_M tile rows."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (group * GROUP_M + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def my_tiles(tiles):
    """First tile of this program, and how many it has: shares that differ by one tile at most."""
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    each = tiles // programs
    extra = tiles % programs
    count = each + (pid < extra).to(tl.int32)
    return pid * each, count


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    first, count = my_tiles(tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N))
    ks = tl.arange(0, BLOCK_K)
    for tile in range(first, first + count):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        row_ok = rows[:, None] < M
        col_ok = cols[None, :] < N
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & col_ok, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (  # noqa: E731
        min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),
    )
    persistent_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides, summed in fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
