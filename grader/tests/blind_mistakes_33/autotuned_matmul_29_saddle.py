# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | in `halves` the width of half a tile is written with a true division, `tl.arange(0, BN / 2)`: it is the float 32.0, 64.0 or 128.0 even for constexpr BN, and tl.arange refuses it (Triton says that its arguments must be of type tl.constexpr); the kernel never compiles, every call of both functions fails; it should be `BN // 2`
"""Matrix product in which a program keeps the left and the right half of its tile apart.

A block of a is loaded once and meets two blocks of b, each half as wide: two chains of products that do not wait
for each other, and two stores that need fewer registers.
"""

import torch
import triton
import triton.language as tl


def _pair(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)


PAIRS = [
    _pair(128, 256, 64, 3, 8),
    _pair(256, 128, 64, 3, 8),
    _pair(128, 128, 64, 3, 8),
    _pair(64, 128, 64, 3, 4),
    _pair(64, 64, 32, 3, 4),
]


def prune(configs, named_args, **kwargs):
    limit = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(limit, named_args["M"], named_args["N"])
    return [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit] or configs[-1:]


@triton.jit
def first_of(tile, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Groups of eight tile rows, each walked column by column."""
    across = tl.cdiv(N, BN)
    group = tile // (8 * across)
    height = min(tl.cdiv(M, BM) - 8 * group, 8)
    within = tile - 8 * group * across
    return (8 * group + within % height) * BM, within // height * BN


@triton.jit
def halves(n, BN: tl.constexpr):
    """The columns of both halves of a tile that begins in column n."""
    left = (n + tl.arange(0, BN / 2)).to(tl.int64)
    return left, left + BN // 2


@triton.jit
def b_block(b_ptr, ks, cols, stride_bk, stride_bn, K, N):
    inside = (ks[:, None] < K) & (cols[None, :] < N)
    return tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=inside, other=0.0)


@triton.jit
def write(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Epilogue and store of one half."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


@triton.autotune(configs=PAIRS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def twin_matmul(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n = first_of(tl.program_id(0), M, N, BM, BN)
    rows = (m + tl.arange(0, BM)).to(tl.int64)
    left, right = halves(n, BN)
    acc_left = tl.zeros((BM, BN // 2), dtype=tl.float32)
    acc_right = tl.zeros((BM, BN // 2), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = (k + tl.arange(0, BK)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (ks[None, :] < K),
            other=0.0,
        )
        b_left = b_block(b_ptr, ks, left, stride_bk, stride_bn, K, N)
        acc_left = tl.dot(a, b_left, acc_left, input_precision="ieee")
        b_right = b_block(b_ptr, ks, right, stride_bk, stride_bn, K, N)
        acc_right = tl.dot(a, b_right, acc_right, input_precision="ieee")
    write(acc_left, c_ptr, bias_ptr, rows, left, M, N, stride_cm, stride_cn, BIAS_RELU)
    write(acc_right, c_ptr, bias_ptr, rows, right, M, N, stride_cm, stride_cn, BIAS_RELU)


def _call(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    twin_matmul[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _call(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _call(a, b, bias, out, bias_relu=True)
