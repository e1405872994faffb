# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel`, `in_k = k + tl.arange(0, BLOCK_K) < K` masks the last step of a part with K; it should be `< end`. Where K is split (K at least 512 and few tiles) and the part's length, cdiv(K, PARTS), is no multiple of BLOCK_K, the first elements of the next part are counted twice, as for 24 x 16 x 4096 (12 parts of 342). Right where K is not split.
"""Matrix product with a tuned tile; where K is long and the result small, programs share K and a second kernel adds."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132  # as many as there are SMs on an H100 or H200
MOST_PARTS = 12


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: no tile beyond the result, 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, cols, N, BIAS_RELU: tl.constexpr):
    """What comes after the sum, still in fp32."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) sums its part of K and stores the tile to plane `part` of c."""
    part = tl.program_id(axis=1)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    length = tl.cdiv(K, PARTS)
    begin = part * length
    end = tl.minimum(begin + length, K)
    tl.assume(end > begin)
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    in_m = (rows < M)[:, None]
    in_n = (cols < N)[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        in_k = k + tl.arange(0, BLOCK_K) < K
        a = tl.load(a_ptrs, mask=in_m & in_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=in_k[:, None] & in_n, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    acc = finish(acc, bias_ptr, cols, N, BIAS_RELU)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


@triton.jit
def add_parts_kernel(
    parts_ptr, c_ptr, bias_ptr, N, stride_part, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the planes of parts, (PARTS, M, N) and contiguous, for BLOCK columns of one row of c."""
    blocks = tl.cdiv(N, BLOCK)
    row = (tl.program_id(axis=0) // blocks).to(tl.int64)
    cols = (tl.program_id(axis=0) % blocks * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    plane = parts_ptr + row * N + cols
    total = tl.zeros((1, BLOCK), dtype=tl.float32)
    for _part in range(PARTS):
        total += tl.load(plane, mask=cols < N, other=0.0)[None, :]
        plane += stride_part
    total = finish(total, bias_ptr, cols, N, BIAS_RELU)
    c_ptrs = c_ptr + row * stride_cm + cols * stride_cn
    tl.store(c_ptrs[None, :], total.to(c_ptr.dtype.element_ty), mask=(cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    idle = PROGRAMS // (triton.cdiv(M, 64) * triton.cdiv(N, 64))
    parts = max(1, min(idle, K // 256, MOST_PARTS))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(),
            PARTS=1, BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    planes = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, planes, bias, M, N, K, *a.stride(), *b.stride(), *planes.stride(),
        PARTS=parts, BIAS_RELU=False,
    )  # fmt: skip
    add_parts_kernel[(M * triton.cdiv(N, 128),)](
        planes, out, bias, N, planes.stride(0), *out.stride(), PARTS=parts, BIAS_RELU=bias_relu, BLOCK=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), added and clamped in fp32 by whichever kernel is the last."""
    return _launch(a, b, bias, out, bias_relu=True)
