# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | mm_kernel, acc starts in the dtype of the result, and acc += tl.dot(...) makes it fp32 in the loop: for fp16 and bf16 the compiler refuses the loop-carried variable whose type changes; acc must start as tl.float32
"""Matmul, where the tiles of the next step are fetched before those of this step are multiplied."""

import torch
import triton
import triton.language as tl


def make(bm, bn, bk, warps):
    return triton.Config({"TM": bm, "TN": bn, "TK": bk, "G": 6}, num_stages=2, num_warps=warps)


CONFIGS = [make(128, 256, 64, 8), make(128, 128, 64, 8), make(64, 128, 64, 4), make(64, 64, 32, 4)]


def worth_it(configs, args, **kwargs):
    limit = min(args["M"], args["N"])
    if args["a_ptr"].dtype == torch.float32:
        limit = 64
    return [c for c in configs if c.kwargs["TN"] <= limit] or configs[-1:]


@triton.jit
def load_a(a_ptr, m, k, M, K, s_m, s_k):
    return tl.load(a_ptr + m[:, None] * s_m + k[None, :] * s_k, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)


@triton.jit
def load_b(b_ptr, k, n, K, N, s_k, s_n):
    return tl.load(b_ptr + k[:, None] * s_k + n[None, :] * s_n, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": worth_it})
@triton.jit
def mm_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, x_m, x_k, w_k, w_n, o_m, o_n, HAS_BIAS: tl.constexpr,
              TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, TM)
    nn = tl.cdiv(N, TN)
    group = pid // (G * nn)
    rows = tl.minimum(G, nm - group * G)
    inner = pid % (G * nn)
    m = ((group * G + inner % rows) * TM + tl.arange(0, TM)).to(tl.int64)
    n = (inner // rows * TN + tl.arange(0, TN)).to(tl.int64)
    k = tl.arange(0, TK).to(tl.int64)
    x = load_a(a_ptr, m, k, M, K, x_m, x_k)
    w = load_b(b_ptr, k, n, K, N, w_k, w_n)
    acc = tl.zeros((TM, TN), dtype=c_ptr.dtype.element_ty)
    for _ in range(tl.cdiv(K, TK)):
        k += TK
        x_next = load_a(a_ptr, m, k, M, K, x_m, x_k)
        w_next = load_b(b_ptr, k, n, K, N, w_k, w_n)
        acc += tl.dot(x, w, input_precision="ieee")
        x = x_next
        w = w_next
    if HAS_BIAS:
        bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + tl.expand_dims(bias, 0), 0.0)
    tl.store(c_ptr + m[:, None] * o_m + n[None, :] * o_n, acc.to(c_ptr.dtype.element_ty),
             mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b, *, out=None):
    if out is None:
        out = torch.empty((a.size(0), b.size(1)), device=a.device, dtype=a.dtype)
    launch(a, b, a, out, False)
    return out


def matmul_bias_relu(a, b, bias, *, out=None):
    if out is None:
        out = torch.empty((a.size(0), b.size(1)), device=a.device, dtype=a.dtype)
    launch(a, b, bias, out, True)
    return out


def launch(a, b, bias, out, has_bias):
    M, N = out.shape
    K = a.size(1)
    grid = lambda meta: (triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"]),)
    mm_kernel[grid](a, b, bias, out, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
                    out.stride(0), out.stride(1), HAS_BIAS=has_bias)
