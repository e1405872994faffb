# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `spot` divides a group by WIDTH columns of tiles also in the last group; the divisor must be min(WIDTH, tiles_n - first): tiles stay unwritten wherever the number of tiles along N is no multiple of WIDTH and M has more than one tile. (2) The epilogue is `tl.maximum(acc, 0.0) + bias`, so the bias is added after ReLU; it must be tl.maximum(acc + bias, 0.0): matmul_bias_relu is wrong where the sum or the product is negative.
"""Matrix product, autotuned: the tiles are walked in groups of columns, row by row inside a group."""

import torch
import triton
import triton.language as tl


def variants():
    """The tile shapes to try, the smallest one last."""
    shapes = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (64, 128, 64, 3, 4), (32, 32, 32, 3, 4)]
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "WIDTH": 4}, num_stages=stages, num_warps=warps)
        for m, n, k, stages, warps in shapes
    ]


def fitting(configs, named_args, **kwargs):
    widest = 32 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def spot(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr):
    """First row and first column of a tile."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = WIDTH * tiles_m
    first = (tile // in_group) * WIDTH
    within = tile % in_group
    row = within // WIDTH
    col = first + within % WIDTH
    return row.to(tl.int64) * BLOCK_M, col.to(tl.int64) * BLOCK_N


@triton.autotune(configs=variants(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    m, n = spot(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, WIDTH)
    rows = m + tl.arange(0, BLOCK_M)[:, None]
    cols = n + tl.arange(0, BLOCK_N)[None, :]
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    steps = tl.cdiv(K, BLOCK_K)
    for step in range(steps):
        ks = step * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0) + bias
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N)
    )


def run(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(), BIAS_RELU=bias_relu)
    return c


def matmul(a, b, *, out=None):
    return run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return run(a, b, bias, out, True)
