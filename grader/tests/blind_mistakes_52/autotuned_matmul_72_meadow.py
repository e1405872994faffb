# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | A long K with few tiles is split into slices that write fp32 sheets of a workspace (second grid axis), and a second kernel adds the sheets up in a fixed order and has the epilogue; otherwise one kernel with the epilogue writes `out` directly. No atomics, same bits in each run.
"""Matrix product, autotuned, and the same with bias and ReLU; a long K is split, and a second kernel adds up."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    # BLOCK_K divides SLICE, so that only the last step of the last slice meets the end of K.
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


SLICE = 64
CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def with_bias(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, length,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (pid, part) owns one tile of sheet `part` of c: the sums over [part * length, (part + 1) * length)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    begin = part * length
    end = tl.minimum(begin + length, K)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows < M)[:, None] & (ks < K)[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks < K)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = with_bias(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def add_up_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, parts, stride_ps, stride_pm, stride_pn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the sheets, from the first to the last, with the epilogue of the product."""
    across = tl.cdiv(N, COLUMNS)
    pid = tl.program_id(axis=0)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % across * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    sheet = parts_ptr + rows[:, None] * stride_pm + cols[None, :] * stride_pn
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _part in range(parts):
        acc += tl.load(sheet, mask=inside, other=0.0)
        sheet += stride_ps
    if BIAS_RELU:
        acc = with_bias(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _length(M, N, K):
    """How much of K a program sums: all, unless the result has few tiles and K is long."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    if K < 16 * SLICE or tiles > 32:
        return triton.cdiv(K, SLICE) * SLICE
    parts = min(8, 128 // tiles, K // (4 * SLICE))
    return triton.cdiv(triton.cdiv(K, parts), SLICE) * SLICE


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    length = _length(M, N, K)
    parts = triton.cdiv(K, length)
    if parts == 1:
        sums, strides = out, (0, out.stride(0), out.stride(1))
    else:
        sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
        strides = sums.stride()
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    matmul_kernel[tiles](
        a, b, sums, bias, M, N, K, length, *a.stride(), *b.stride(), *strides,
        BIAS_RELU=bias_relu and parts == 1,
    )  # fmt: skip
    if parts > 1:
        blocks = (triton.cdiv(M, 16) * triton.cdiv(N, 64),)
        add_up_kernel[blocks](
            sums, out, bias, M, N, parts, *strides, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, ROWS=16, COLUMNS=64,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
