# lab3_autotuned_matmul/autotuned_matmul.py | two | (1) `steps = K // BLOCK_K` after max(1, ...) drops the last partial step of K whenever K > BLOCK_K is not a multiple of it; (2) the bias is loaded at bias_ptr + tl.arange(0, BLOCK_N) without the first column n of the tile, so every tile column gets bias[0:BLOCK_N] | "(M, K) @ (K, N)" and "relu(a @ b + bias) ... bias is (N,)"; (1) both functions, K = 33..63, 65.. (K % BLOCK_K != 0, K > BLOCK_K); (2) matmul_bias_relu for N > BLOCK_N
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(128, 128, 32, 4, 8), _config(64, 128, 32, 4, 4), _config(128, 64, 32, 4, 4), _config(32, 32, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    nn = (N + BLOCK_N - 1) // BLOCK_N
    nm = (M + BLOCK_M - 1) // BLOCK_M
    g = tile // (nn * GROUP_M)
    h = tl.minimum(nm - g * GROUP_M, GROUP_M)
    w = tile % (nn * GROUP_M)
    return (g * GROUP_M + w % h) * BLOCK_M, (w // h) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    # move the base pointers to the tile, then only small offsets are left
    a_ptr += m.to(tl.int64) * stride_am
    b_ptr += n.to(tl.int64) * stride_bn
    c_ptr += m.to(tl.int64) * stride_cm + n.to(tl.int64) * stride_cn
    i_ok = i < M - m
    j_ok = j < N - n
    i64, j64, k64 = i.to(tl.int64), j.to(tl.int64), k.to(tl.int64)
    a_offs = i64[:, None] * stride_am + k64[None, :] * stride_ak
    b_offs = k64[:, None] * stride_bk + j64[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    steps = tl.maximum(K // BLOCK_K, 1)
    for s in range(steps):
        k_ok = k < K - s * BLOCK_K
        a = tl.load(a_ptr + a_offs, mask=i_ok[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(b_ptr + b_offs, mask=k_ok[:, None] & j_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptr += BLOCK_K * stride_ak
        b_ptr += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_offs = i64[:, None] * stride_cm + j64[None, :] * stride_cn
    tl.store(c_ptr + c_offs, acc.to(c_ptr.dtype.element_ty), mask=i_ok[:, None] & j_ok[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
