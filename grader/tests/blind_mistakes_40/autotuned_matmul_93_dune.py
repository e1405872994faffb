# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | The sums start from the bias, so that only the ReLU is left at the end; a few tiles with K >= 1024 share K by `tl.atomic_add` into an fp32 workspace with `reset_to_zero`, and a second kernel has the epilogue and the rounding.
"""Autotuned matrix product; a few tiles with a long K are summed by atomic additions in fp32."""

import torch
import triton
import triton.language as tl


def _configs(shapes):
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
        for m, n, k, stages, warps in shapes
    ]


CONFIGS = _configs([(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 4, 8), (64, 64, 32, 4, 4)])
SHARED_CONFIGS = _configs([(128, 128, 64, 4, 8), (64, 64, 32, 4, 4)])


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows as a column and columns as a row, int64, of one of the tiles; 8 rows of tiles form a group."""
    in_group = 8 * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * 8
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, 8)
    within = tile % in_group
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows.to(tl.int64)[:, None], cols.to(tl.int64)[None, :]


@triton.jit
def add_products(
    acc, a_rows, b_cols, row_exists, col_exists, begin, end, stride_ak, stride_bk, BLOCK_K: tl.constexpr
):
    """acc plus the products over k from begin to end."""
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_rows + (begin + ks)[None, :] * stride_ak
    b_ptrs = b_cols + (begin + ks)[:, None] * stride_bk
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < end - k), other=0.0)
        b = tl.load(b_ptrs, mask=col_exists & (ks[:, None] < end - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c. The bias is what the sums start from, so ReLU is all that is left at the end."""
    rows, cols = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    acc = add_products(
        acc, a_ptr + rows * stride_am, b_ptr + cols * stride_bn, rows < M, cols < N, 0, K,
        stride_ak, stride_bk, BLOCK_K,
    )  # fmt: skip
    if BIAS_RELU:
        acc = tl.where(acc > 0.0, acc, 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.autotune(
    configs=SHARED_CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)  # fmt: skip
@triton.jit
def shared_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (pid, share) adds its share of K to a tile of sums, (M, N), fp32, contiguous and 0 before."""
    rows, cols = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    share = tl.cdiv(tl.cdiv(K, tl.num_programs(axis=1)), BLOCK_K) * BLOCK_K
    begin = tl.program_id(axis=1) * share
    acc = add_products(
        tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32), a_ptr + rows * stride_am, b_ptr + cols * stride_bn,
        rows < M, cols < N, begin, tl.minimum(begin + share, K), stride_ak, stride_bk, BLOCK_K,
    )  # fmt: skip
    tl.atomic_add(sums_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c from its sums, with the epilogue where asked for."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (tl.program_id(axis=1) * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    c = tl.load(sums_ptr + rows * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        c += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        c = tl.where(c > 0.0, c, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    few = triton.cdiv(M, 128) * triton.cdiv(N, 128) < 64
    if few and K >= 1024:
        sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
        grid = lambda meta: (tiles(meta), min(8, K // 256))  # noqa: E731
        shared_kernel[grid](a, b, sums, M, N, K, *a.stride(), *b.stride())
        finish_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 128))](
            sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, ROWS=16, COLS=128
        )
        return out
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the epilogue in the last kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
