# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In gemm the loop runs tl.cdiv(K, BLOCK_K) // UNROLL rounds, so with the configs that have UNROLL 2 or 4 the last blocks of K are dropped where the number of blocks is no multiple of UNROLL; it should be tl.cdiv(K, BLOCK_K * UNROLL).
import torch
import triton
import triton.language as tl
from triton import cdiv

# (BLOCK_M, BLOCK_N, BLOCK_K, UNROLL, stages, warps)
SHAPES = [
    (128, 256, 64, 1, 3, 8),
    (256, 128, 64, 1, 3, 8),
    (128, 128, 32, 2, 3, 8),
    (128, 64, 64, 1, 3, 4),
    (64, 64, 16, 4, 3, 4),
    (32, 64, 32, 2, 3, 4),
    (64, 64, 32, 1, 4, 4),
]
CANDIDATES = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "UNROLL": u}, num_stages=st, num_warps=w)
    for bm, bn, bk, u, st, w in SHAPES
]


def sensible(configs, named_args, **kwargs):
    limit = 64 if named_args["x"].dtype == torch.float32 else 256
    limit = min(limit, max(named_args["M"], named_args["N"]))
    chosen = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            chosen.append(config)
    return chosen if chosen else [configs[-1]]


@triton.autotune(configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": sensible})
@triton.jit
def gemm(
    x,
    y,
    z,
    bias,
    M,
    N,
    K,
    sxm,
    sxk,
    syk,
    syn,
    szm,
    szn,
    EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    UNROLL: tl.constexpr,
):
    # tiles in bands of four tile rows, so that neighbouring programs share columns of y
    pid = tl.program_id(0)
    across = tl.cdiv(N, BLOCK_N)
    band = pid // (4 * across)
    rest = pid % (4 * across)
    tall = tl.minimum(tl.cdiv(M, BLOCK_M) - 4 * band, 4)
    i = (4 * band + rest % tall).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = (rest // tall).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K).to(tl.int64)

    x_row = x + i[:, None] * sxm
    y_col = y + j[None, :] * syn
    x_ok = (i < M)[:, None]
    y_ok = (j < N)[None, :]

    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    rounds = tl.cdiv(K, BLOCK_K) // UNROLL
    for r in range(0, rounds):
        for u in tl.static_range(UNROLL):
            kk = k + (r * UNROLL + u) * BLOCK_K
            xs = tl.load(x_row + kk[None, :] * sxk, mask=x_ok & (kk < K)[None, :], other=0.0)
            ys = tl.load(y_col + kk[:, None] * syk, mask=y_ok & (kk < K)[:, None], other=0.0)
            total = tl.dot(xs, ys, total, input_precision="ieee")

    if EPILOGUE:
        shift = tl.load(bias + j, mask=j < N, other=0.0)
        total += shift.to(tl.float32)[None, :]
        total = tl.where(total > 0, total, 0.0)

    tl.store(z + i[:, None] * szm + j[None, :] * szn, total.to(z.dtype.element_ty), mask=x_ok & y_ok)


def _strides(*tensors):
    return [step for tensor in tensors for step in tensor.stride()]


def _product(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.size(1)
    assert b.size(0) == K, f"a has {K} columns and b {b.size(0)} rows"
    z = a.new_empty((M, N)) if out is None else out
    programs = lambda meta: (cdiv(M, meta["BLOCK_M"]) * cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    gemm[programs](a, b, z, bias, M, N, K, *_strides(a, b, z), EPILOGUE=epilogue)
    return z


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, a, out, epilogue=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, bias, out, epilogue=True)
