# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_t_kernel, bt_ptrs: the strides of b are exchanged, column j is multiplied by sbk and row k by sbn; it must be j * sbn + k_row * sbk
"""The product is computed as C^T = B^T A^T: a program has a tile of C^T and stores it by the strides of C."""

import torch
import triton
import triton.language as tl

SHAPES = ((256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (128, 64, 64, 4, 4), (64, 64, 32, 3, 4))
CONFIGS = [
    triton.Config({"BN": bn, "BM": bm, "BK": bk, "WIDE": 8}, num_stages=s, num_warps=w) for bn, bm, bk, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    largest = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        largest = 64
    out = []
    for c in configs:
        if c.kwargs["BN"] <= largest and c.kwargs["BM"] <= largest:
            out.append(c)
    return out or [configs[-1]]


@triton.jit
def tile_of(pid, tiles_m, tiles_n, WIDE: tl.constexpr):
    """Number of the tile along M and along N; WIDE columns of tiles are walked together."""
    per_group = WIDE * tiles_m
    group = pid // per_group
    remaining = group * WIDE
    width = tl.minimum(WIDE, tiles_n - remaining)
    rest = pid - group * per_group
    return rest // width, remaining + rest % width


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_t_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, BIAS_RELU: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    tm, tn = tile_of(tl.program_id(axis=0), tl.cdiv(M, BM), tl.cdiv(N, BN), WIDE)
    i = tm.to(tl.int64) * BM + tl.arange(0, BM)[None, :]  # rows of C run along the second axis
    j = tn.to(tl.int64) * BN + tl.arange(0, BN)[:, None]  # columns of C along the first
    k_row = tl.arange(0, BK)[None, :].to(tl.int64)
    k_col = tl.arange(0, BK)[:, None].to(tl.int64)
    bt_ptrs = b_ptr + j * sbk + k_row * sbn
    at_ptrs = a_ptr + k_col * sak + i * sam
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        remaining = K - start
        bt = tl.load(bt_ptrs, mask=(j < N) & (k_row < remaining), other=0.0)
        at = tl.load(at_ptrs, mask=(k_col < remaining) & (i < M), other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += tl.cast(sbk, tl.int64) * BK
        at_ptrs += tl.cast(sak, tl.int64) * BK
    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + i * scm + j * scn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def launch(a, b, bias, out, fused):
    M, K = a.shape
    _, N = b.shape
    result = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sizes = (M, N, K)
    strides = a.stride() + b.stride() + result.stride()
    matmul_t_kernel[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)](
        a, b, result, bias, *sizes, *strides, BIAS_RELU=fused
    )
    return result


def matmul(a, b, *, out=None):
    return launch(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return launch(a, b, bias, out, fused=True)
