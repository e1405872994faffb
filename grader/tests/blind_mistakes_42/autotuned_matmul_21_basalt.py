# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Where tiles are few and K is at least 1024, programs share K by `tl.atomic_add` into fp32 zeros (with `reset_to_zero`), in parts that are multiples of 64, and a third kernel has the epilogue; elsewhere one kernel does all. Order of tiles by `tl.swizzle2d`.
"""Matrix product by tiles; where these are few and K is long, programs share K with atomic additions."""

import torch
import triton
import triton.language as tl

BUSY = 128  # programs below which K is shared
SHORTEST = 512  # no program gets less of K than this


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


SMALL = _config(64, 64, 32, 4, 4)
CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    SMALL,
]
SHARED_CONFIGS = [_config(64, 64, 64, 4, 4), SMALL]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result, and the last one for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    across = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // across, tile % across, tl.cdiv(M, BLOCK_M), across, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def partial(
    a_ptr, b_ptr, rows, cols, M, N, begin, end, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The products of one tile, summed over k from begin up to end."""
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        inside = k + tl.arange(0, BLOCK_K) < end
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=inside[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.jit
def finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Bias and ReLU in fp32 where asked for, then one rounding."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def whole_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A program owns a tile and all of K."""
    tl.assume(K > 0)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = partial(a_ptr, b_ptr, rows, cols, M, N, 0, K, stride_am, stride_ak, stride_bk, stride_bn,
                  BLOCK_M, BLOCK_N, BLOCK_K)  # fmt: skip
    finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


@triton.autotune(
    configs=SHARED_CONFIGS, key=["M", "N", "K"], reset_to_zero=["sums_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)  # fmt: skip
@triton.jit
def shared_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, length, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A program adds `length` of K to its tile of sums, (M, N) in fp32, contiguous, zeros before the launch."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    begin = tl.program_id(axis=1) * length
    end = tl.minimum(begin + length, K)
    tl.assume(end > begin)
    acc = partial(a_ptr, b_ptr, rows, cols, M, N, begin, end, stride_am, stride_ak, stride_bk, stride_bn,
                  BLOCK_M, BLOCK_N, BLOCK_K)  # fmt: skip
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=mask, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, SIDE: tl.constexpr
):
    """The epilogue of one SIDE x SIDE tile of sums."""
    across = tl.cdiv(N, SIDE)
    rows = (tl.program_id(axis=0) // across * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    cols = (tl.program_id(axis=0) % across * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    sums = tl.load(sums_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    squares = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    parts = min(BUSY // squares, K // SHORTEST)
    if parts < 2:
        whole_kernel[lambda meta: (tiles(meta),)](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    # Whole steps of either BLOCK_K for each program; the last one may have less, but never nothing.
    length = triton.cdiv(triton.cdiv(K, parts), 64) * 64
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    shared_kernel[lambda meta: (tiles(meta), triton.cdiv(K, length))](
        a, b, sums, M, N, K, length, *a.stride(), *b.stride()
    )
    finish_kernel[(squares,)](sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, SIDE=64)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel of the call adds the bias and clamps."""
    return _launch(a, b, bias, out, bias_relu=True)
