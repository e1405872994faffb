# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | in `persistent_matmul` the tile of sums is cut by `tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2)))`, which gives the even and the odd columns, while `store_strip` takes them for the left and the right half: the columns come out in the wrong order in every tile, in both functions, for every N above 1; it should be `tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))`
"""Persistent matrix product: a fixed number of programs walks over all tiles, and stores each in two strips."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // in_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def store_strip(
    c_ptr, bias_ptr, strip, rows, first_column, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The epilogue and the store of WIDTH columns of c, beginning at first_column."""
    cols = (first_column + tl.arange(0, WIDTH)).to(tl.int64)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        strip = tl.maximum(strip + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, strip.to(c_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_matmul(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        ks = tl.arange(0, BLOCK_K).to(tl.int64)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            here = k + ks
            a = tl.load(
                a_ptr + rows[:, None] * stride_am + here[None, :] * stride_ak,
                mask=(rows[:, None] < M) & (here[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_ptr + here[:, None] * stride_bk + cols[None, :] * stride_bn,
                mask=(here[:, None] < K) & (cols[None, :] < N),
                other=0.0,
            )
            acc = tl.dot(a, b, acc, input_precision="ieee")

        # Two narrow stores need fewer registers than one wide store.
        left, right = tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2)))
        store_strip(
            c_ptr, bias_ptr, left, rows, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_N // 2
        )
        store_strip(
            c_ptr, bias_ptr, right, rows, n + BLOCK_N // 2, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_N // 2
        )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(PROGRAMS, tiles(meta)),)  # noqa: E731
    persistent_matmul[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
