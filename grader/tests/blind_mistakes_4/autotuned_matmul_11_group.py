# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) corner_of: a group always counts GROUP_M rows of tiles, so where the tile rows are no multiple of 8 the last group sends programs to rows that do not exist and leaves tiles unwritten; rows must be min(tiles_m - first, GROUP_M). (2) matmul_kernel, the addresses of a: the index along K is not multiplied by stride_ak, so an a that is transposed or every second column of a wider one is read at wrong places
"""Persistent matmul: a fixed number of programs, each of which walks over the tiles of C."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264


def cfg(bm, bn, bk, stages, warps):
    return triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [cfg(128, 256, 64, 3, 8), cfg(256, 128, 64, 3, 8), cfg(128, 128, 64, 4, 8), cfg(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def corner_of(t, tiles_m, tiles_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    width = GROUP_M * tiles_n
    group = t // width
    pid_m = group * GROUP_M + (t % width) % GROUP_M
    pid_n = (t % width) // GROUP_M
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps_k = tl.cdiv(K, BLOCK_K)
    rk = tl.arange(0, BLOCK_K)
    for t in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        m0, n0 = corner_of(t, tiles_m, tiles_n, BLOCK_M, BLOCK_N, GROUP_M)
        rm = (m0 + tl.arange(0, BLOCK_M)).cast(tl.int64)
        rn = (n0 + tl.arange(0, BLOCK_N)).cast(tl.int64)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps_k):
            kk = (step * BLOCK_K + rk).cast(tl.int64)
            a = tl.load(a_ptr + rm[:, None] * stride_am + kk[None, :],
                        mask=(rm[:, None] < M) & (kk[None, :] < K), other=0.0)
            b = tl.load(b_ptr + kk[:, None] * stride_bk + rn[None, :] * stride_bn,
                        mask=(kk[:, None] < K) & (rn[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0)
            acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)
        tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn, acc.to(c_ptr.dtype.element_ty),
                 mask=(rm[:, None] < M) & (rn[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)
    matmul_kernel[grid](a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
                        out.stride(0), out.stride(1), BIAS_RELU=bias_relu)
    return out


def matmul(a, b, *, out=None):
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _launch(a, b, bias, out, True)
