# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Block pointers with positional arguments; where c has few tiles, K is split in a power of two of parts with fp32 partial sums in scratch, which a second kernel joins by `tl.reduce` with a combine function of its own, in a fixed order, with the epilogue; nothing is wrong.
"""Matrix product on block pointers; K is split where c has few tiles, and tl.reduce joins the parts."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=4, num_warps=4),
]
STEP = 64  # a part of K begins at a multiple of every BK
ENOUGH = 64  # with so many tiles of 64 x 64 K stays whole
WIDTH = 256  # columns of c that one program of the second kernel joins


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size]
    return kept or configs[-1:]


@triton.jit
def with_bias_relu(acc, bias_ptr, cols, N):
    """relu(acc + bias) for rows of fp32 sums."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "parts"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, parts, part_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, GROUP_M: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Part p of c: the products along K from p * part_k on, part_k of them or what is left."""
    tile = tl.program_id(axis=0)
    part = tl.program_id(axis=1)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = tile // (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    m = (group * GROUP_M + within % height) * BM
    n = within // height * BN
    begin = part * part_k
    end = tl.minimum(begin + part_k, K)

    a_block = tl.make_block_ptr(a_ptr, (M, K), (stride_am, stride_ak), (m, begin), (BM, BK), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, stride_bn), (begin, n), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(begin, end, BK):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BK))
        b_block = tl.advance(b_block, (BK, 0))

    if BIAS_RELU:
        acc = with_bias_relu(acc, bias_ptr, n + tl.arange(0, BN), N)
    here = c_ptr + part.to(tl.int64) * stride_cp
    c_block = tl.make_block_ptr(here, (M, N), (stride_cm, stride_cn), (m, n), (BM, BN), (1, 0))
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def _plus(x, y):
    return x + y


@triton.jit
def join_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cp, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """WIDTH numbers of a row of c: the sum of the parts in a fixed order, then the epilogue."""
    pid = tl.program_id(axis=0)
    pieces = tl.cdiv(N, WIDTH)
    row = (pid // pieces).to(tl.int64)
    cols = pid % pieces * WIDTH + tl.arange(0, WIDTH)
    exists = cols[None, :] < N
    which = tl.arange(0, PARTS).to(tl.int64)[:, None]
    parts = tl.load(parts_ptr + which * stride_cp + row * N + cols[None, :], mask=exists, other=0.0)
    acc = tl.reduce(parts, 0, _plus)[None, :]
    if BIAS_RELU:
        acc = with_bias_relu(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + row * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=exists)


def _parts_of(M, N, K):
    """In how many parts K is split, a power of two, and how long each of them is."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    parts = 1
    while parts < 8 and 2 * parts * tiles <= ENOUGH and 2 * parts * STEP <= K:
        parts *= 2
    return parts, triton.cdiv(triton.cdiv(K, parts), STEP) * STEP


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts, part_k = _parts_of(M, N, K)
    whole = parts == 1
    sums = out if whole else torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    strides = (0, *out.stride()) if whole else sums.stride()
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), parts)  # noqa: E731
    parts_kernel[grid](
        a, b, sums, bias, M, N, K, parts, part_k, *a.stride(), *b.stride(), *strides,
        BIAS_RELU=bias_relu and whole, GROUP_M=8,
    )  # fmt: skip
    if not whole:
        join_kernel[(M * triton.cdiv(N, WIDTH),)](
            sums, out, bias, M, N, sums.stride(0), *out.stride(),
            PARTS=parts, BIAS_RELU=bias_relu, WIDTH=WIDTH,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the kernel that runs last has the epilogue. bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
