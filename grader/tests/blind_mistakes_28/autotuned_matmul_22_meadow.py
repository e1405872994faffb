# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | nn_kernel takes the columns of b for adjacent (`b_ptr + ks[:, None] * stride_bk + cols[None, :]`, no column stride), and _run sends every b there whose stride(0) is not 1. Both functions are wrong where neither stride of b is 1, as for every second column of a wider matrix (N > 1); contiguous, padded and transposed b are right. It should be cols[None, :] * stride_bn, with b.stride(1) passed.
"""One kernel for b as (K, N), another for b as the transposed view of (N, K) weights."""

import torch
import triton
import triton.language as tl


def _tile(m, n, k, stages, warps):
    return triton.Config({"TM": m, "TN": n, "TK": k}, num_stages=stages, num_warps=warps)


SHAPES = [
    _tile(128, 256, 64, 3, 8),
    _tile(256, 128, 64, 3, 8),
    _tile(128, 128, 32, 4, 8),
    _tile(64, 128, 64, 3, 4),
    _tile(64, 64, 32, 3, 4),
]


def _sensible(configs, named, **_):
    if named["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    small = min(named["M"], named["N"])
    return [c for c in configs[:-1] if c.kwargs["TM"] <= small and c.kwargs["TN"] <= small] + configs[-1:]


@triton.jit
def _where(M, N, TM: tl.constexpr, TN: tl.constexpr):
    GROUP: tl.constexpr = 8
    pid = tl.program_id(0)
    wide = tl.cdiv(N, TN)
    first = pid // (GROUP * wide) * GROUP
    tall = tl.minimum(tl.cdiv(M, TM) - first, GROUP)
    rest = pid % (GROUP * wide)
    rows = (first + rest % tall) * TM + tl.arange(0, TM)
    cols = rest // tall * TN + tl.arange(0, TN)
    return rows.to(tl.int64), cols.to(tl.int64)


@triton.jit
def _finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, FUSED: tl.constexpr):
    if FUSED:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    here = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(here, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=SHAPES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _sensible})
@triton.jit
def nn_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_cm, stride_cn,
    FUSED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    rows, cols = _where(M, N, TM, TN)
    acc = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, TK):
        ks = k + tl.arange(0, TK).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0,
        )  # fmt: skip
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :],
            mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc, input_precision="ieee")
    _finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, FUSED)


@triton.autotune(configs=SHAPES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _sensible})
@triton.jit
def nt_kernel(
    a_ptr, w_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_wn, stride_cm, stride_cn,
    FUSED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    # w is (N, K) with its columns side by side: a tile of it is loaded as it lies, and turned for the dot.
    rows, cols = _where(M, N, TM, TN)
    acc = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, TK):
        ks = k + tl.arange(0, TK).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0,
        )  # fmt: skip
        w = tl.load(
            w_ptr + cols[:, None] * stride_wn + ks[None, :],
            mask=(cols[:, None] < N) & (ks[None, :] < K), other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, tl.trans(w), acc, input_precision="ieee")
    _finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, FUSED)


def _run(a, b, bias, out, fused):
    M, K, N = a.shape[0], a.shape[1], b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)

    def grid(meta):
        return (triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"]),)

    if b.stride(0) == 1:
        nt_kernel[grid](
            a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(1), out.stride(0), out.stride(1),
            FUSED=fused,
        )  # fmt: skip
    else:
        nn_kernel[grid](
            a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), out.stride(0), out.stride(1),
            FUSED=fused,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _run(a, b, bias, out, True)
