# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | Where K is split, `matmul_kernel` applies `if BIAS_RELU: ... acc = tl.maximum(acc + bias, 0.0)` to each part, and `add_parts_kernel` only adds the parts: the bias is added once for each part, and parts are clamped before they are summed. The epilogue should be in `add_parts_kernel` (and in `matmul_kernel` only when parts is 1). Shows in `matmul_bias_relu` alone, for K >= 256 with fewer than 64 tiles of 128 x 128, as 100 x 300 x 257 and 16 x 192 x 384.
"""Autotuned matrix product; small results with a long K are split along K and summed by a second kernel."""

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
    _config(64, 128, 64, 4, 4),
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


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_part, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (pid, part) owns one tile of one part: the sums over its share of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    # Shares of K are whole blocks; the last ones may be shorter, or empty.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(axis=1)) * BLOCK_K
    begin = part * share
    end = tl.minimum(begin + share, K)

    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ka = begin + tl.arange(0, BLOCK_K)[None, :]
    kb = begin + tl.arange(0, BLOCK_K)[:, None]
    a_ptrs = a_ptr + rows * stride_am + ka * stride_ak
    b_ptrs = b_ptr + cols * stride_bn + kb * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        left = K - (k - begin)
        a = tl.load(a_ptrs, mask=(rows < M) & (ka < left), other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & (kb < left), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_part + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_parts_kernel(
    parts_ptr, c_ptr, M, N, parts, stride_part, stride_cm, stride_cn, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """c = the sum of the parts, which are fp32 and contiguous, rounded to the dtype of c."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (tl.program_id(axis=1) * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    ptrs = parts_ptr + rows * N + cols
    for part in range(0, parts):
        total += tl.load(ptrs, mask=inside, other=0.0)
        ptrs += stride_part
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _parts(M, N, K):
    """Among how many programs K is split: one where there are tiles enough for all SMs."""
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    if tiles >= 64 or K < 256:
        return 1
    return min(8, 128 // tiles, K // 128)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = _parts(M, N, K)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta), parts)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, *a.stride(), *b.stride(), *sums.stride(), BIAS_RELU=bias_relu
    )
    add_parts_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 128))](
        sums, out, M, N, parts, sums.stride(0), out.stride(0), out.stride(1), ROWS=16, COLS=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
