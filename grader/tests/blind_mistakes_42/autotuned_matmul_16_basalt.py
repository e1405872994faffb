# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `matmul_kernel` the loop over tiles leaves out rows of tiles past M by `continue`, which Triton does not compile in a kernel (unsupported AST node: Continue); it should put the body under `if m < M:` or give the last group its true height. COMPILE_ERROR in all cases on a GPU or when compiled for one; the interpreter runs it with right results.
"""Persistent matrix product: a fixed number of programs walks over all tiles, in groups of rows of tiles."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are no larger than the result, at most 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, where every group has GROUP_M rows of tiles."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    within = tile % in_group
    row = tile // in_group * GROUP_M + within % GROUP_M
    return row * BLOCK_M, within // GROUP_M * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias): each program takes every tile that is its turn."""
    tl.assume(K > 0)
    groups = tl.cdiv(tl.cdiv(M, BLOCK_M), GROUP_M)
    places = groups * GROUP_M * tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(axis=0), places, tl.num_programs(axis=0)):
        m, n = place(tile, N, BLOCK_M, BLOCK_N, GROUP_M)
        if m >= M:
            # The last group may be shorter: no such row of tiles.
            continue
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        row_mask = rows < M
        col_mask = cols < N
        a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=row_mask & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & col_mask, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias, 0.0)
        c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (min(PROGRAMS, tiles(meta)),)](
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
