# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product tile by tile. Where c has few tiles, K is cut into parts, and a second kernel adds them up."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 32, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 32, 3, 4),
]
FEW_TILES = 64
PART = 512
MOST_PARTS = 8


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    wide = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * wide) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile - first * wide
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """relu(acc + bias), in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, part_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c[p] = a[:, part p of K] @ b[part p of K, :]; program (tile, p) owns one tile of plane p."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    begin = part * part_k
    end = min(begin + part_k, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        here = ks < end
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M)[:, None] & here[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=here[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    plane = c_ptr + part.to(tl.int64) * stride_cp
    tl.store(
        plane + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (cols < N)[None, :],
    )


@triton.jit
def add_parts_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, parts, stride_pp, stride_pm, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the planes, with the epilogue where it is asked for."""
    wide = tl.cdiv(N, COLS)
    block = tl.program_id(axis=0)
    rows = (block // wide * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (block % wide * COLS + tl.arange(0, COLS)).to(tl.int64)
    exists = (rows < M)[:, None] & (cols < N)[None, :]
    at = parts_ptr + rows[:, None] * stride_pm + cols[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(parts):
        acc += tl.load(at, mask=exists, other=0.0)
        at += stride_pp
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=exists,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    few = triton.cdiv(M, 128) * triton.cdiv(N, 128) < FEW_TILES
    parts = min(triton.cdiv(K, PART), MOST_PARTS) if few else 1
    part_k = triton.cdiv(K, parts)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts

    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, part_k, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    planes = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, planes, bias, M, N, K, part_k, *a.stride(), *b.stride(), *planes.stride(), BIAS_RELU=False
    )
    add_parts_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        planes, out, bias, M, N, parts, planes.stride(0), planes.stride(1), *out.stride(),
        BIAS_RELU=bias_relu, ROWS=16, COLS=64,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel of the call has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
