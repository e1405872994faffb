# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: a small result with a long K (at most 32 tiles of 64 x 64, K at least 1024) is split along K over axis 1 of the grid into fp32 parts in a workspace, without atomics, and `join_kernel` adds them in a fixed order and has the epilogue; otherwise the same kernel stores directly. Both kernels share the jit helper `finish`. A share of K is a multiple of 64, which each BLOCK_K divides.
"""Matrix product tile by tile, autotuned; a small result with a long K is split, and its parts are added up."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


LONGEST_STEP = 64  # each BLOCK_K below divides this
CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
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
    group = tile // in_group
    within = tile - group * in_group
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    column = within // height
    row = first + within - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.jit
def finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Store fp32 sums at int64 rows and columns of c, behind the epilogue where BIAS_RELU."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a program owns one BLOCK_M x BLOCK_N tile of c.

    a is (M, K), b (K, N) and c (M, N), bf16, fp16 or fp32, any strides; bias is (N,), contiguous, and read
    where BIAS_RELU. With SPLIT program (t, s) sums only the s-th `share` of K, a multiple of BLOCK_K, and
    stores it to the s-th of several matrices that lie one behind the other in c.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * stride_am + lanes[None, :] * stride_ak
    b_tile = b_ptr + lanes[:, None] * stride_bk + cols[None, :] * stride_bn
    if SPLIT:
        part = tl.program_id(axis=1)
        begin = part * share
        length = tl.minimum(K - begin, share)
        a_tile += begin * stride_ak
        b_tile += begin * stride_bk
        c_part = c_ptr + part.to(tl.int64) * M * N
    else:
        tl.assume(K > 0)
        length = K
        c_part = c_ptr
    row_exists = (rows < M)[:, None]
    col_exists = (cols < N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, length, BLOCK_K):
        a = tl.load(a_tile, mask=row_exists & (lanes[None, :] < length - k), other=0.0)
        b = tl.load(b_tile, mask=(lanes[:, None] < length - k) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    finish(acc, c_part, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


@triton.jit
def join_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, parts, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of `parts` fp32 matrices (M, N), one behind the other, with the epilogue where BIAS_RELU."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (tl.program_id(axis=1) * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    tile = parts_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _part in range(0, parts):
        total += tl.load(tile, mask=inside, other=0.0)
        tile += M * N
    finish(total, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _share_of(M, N, K):
    """How much of K a program sums: all of it, unless that leaves most of a GPU without work."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    if tiles > 32 or K < 1024:
        return K
    parts = min(16, K // 256, 128 // tiles)
    return triton.cdiv(triton.cdiv(K, parts), LONGEST_STEP) * LONGEST_STEP


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    share = _share_of(M, N, K)
    parts = triton.cdiv(K, share)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        parts,
    )
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, share,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, SPLIT=False,
        )  # fmt: skip
        return out
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, share,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), N, 1,
        BIAS_RELU=False, SPLIT=True,
    )  # fmt: skip
    join_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 64))](
        sums, out, bias, M, N, parts, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, ROWS=16, COLS=64
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), fused; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
