# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Splits a long K without atomics: part p writes its fp32 sums into plane p of a workspace, and a second kernel adds the planes in order and applies the epilogue; one launch alone where the tiles suffice. No part of K is empty, and two runs give the same bits.
"""A matrix product that splits a long K among programs without atomics, so that two runs give the same bits.

Where the tiles are enough for the GPU, one launch does it all. Otherwise part p of K leaves its fp32 sums in plane
p of a workspace, and a second launch adds the planes in their order, with bias and ReLU.
"""

import torch
import triton
import triton.language as tl

ENOUGH = 128  # programs that keep a large GPU busy
SHORTEST = 256  # a part of K below this is not worth a plane


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


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
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(sums, ptr, bias_ptr, rows, cols, M, N, stride_m, stride_n, BIAS_RELU: tl.constexpr):
    """Bias and ReLU where they are asked for, one rounding, and the store."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    where = ptr + rows[:, None] * stride_m + cols[None, :] * stride_n
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(where, sums.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, part_k, plane,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile over one part of K; the parts are multiples of BLOCK_K, but for the end of the last one."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok, col_ok = (rows < M)[:, None], (cols < N)[None, :]
    part = tl.program_id(1)
    start = part * part_k
    stop = min(start + part_k, K)

    ks = start + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # The host makes no empty part.
    tl.assume(stop > start)
    for k in range(start, stop, BLOCK_K):
        k_ok = tl.arange(0, BLOCK_K) < stop - k
        a = tl.load(a_ptrs, mask=row_ok & k_ok[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & k_ok[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    mine = c_ptr + part.to(tl.int64) * plane
    finish(acc, mine, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


@triton.jit
def add_planes(
    planes_ptr, c_ptr, bias_ptr, M, N, parts, plane, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The planes of the workspace, each (M, N) in fp32 and contiguous, one after the other."""
    across = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    rows = (tile // across * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile % across * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    source = planes_ptr + rows[:, None] * N + cols[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for p in range(0, parts):
        sums += tl.load(source, mask=inside, other=0.0)
        source += plane
    finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _parts(M, N, K):
    """How many parts K has, and how long each is: a multiple of 64, so of every BLOCK_K."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    wanted = max(1, min(16, ENOUGH // tiles, K // SHORTEST))
    part_k = triton.cdiv(triton.cdiv(K, wanted), 64) * 64
    return triton.cdiv(K, part_k), part_k


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts, part_k = _parts(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, part_k, 0, *a.stride(), *b.stride(), *out.stride(),
            BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    planes = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, planes, bias, M, N, K, part_k, M * N, *a.stride(), *b.stride(), N, 1, BIAS_RELU=False
    )  # fmt: skip
    add_planes[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        planes, out, bias, M, N, parts, M * N, *out.stride(), BIAS_RELU=bias_relu, BLOCK_M=16, BLOCK_N=64
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
