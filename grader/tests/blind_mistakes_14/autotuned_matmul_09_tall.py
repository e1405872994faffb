# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | The loop over K takes `K // BLOCK_K` steps, so the tail of K is dropped; it should be `tl.cdiv(K, BLOCK_K)`. The grid divides N by `meta["BLOCK_M"]`, and since BLOCK_M is larger than BLOCK_N in every config, too few programs are launched for a wide result and its last tiles stay unwritten; it should be `triton.cdiv(N, meta["BLOCK_N"])`.
"""Matrix product tile by tile, with tall tiles: a column of b is reused by as many rows of a as possible."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(256, 64, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(128, 64, 32, 4, 4),
    _config(64, 32, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    width = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // width
    size = min(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    pid_m = group * GROUP_M + (tile % width) % size
    pid_n = (tile % width) // size
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    ram = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    rbn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    rk = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m = (ram < M)[:, None]
    in_n = (rbn < N)[None, :]
    A = a_ptr + ram[:, None] * stride_am
    B = b_ptr + rbn[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, K // BLOCK_K):
        ks = step * BLOCK_K + rk
        in_k = ks < K
        a = tl.load(A + ks[None, :] * stride_ak, mask=in_m & in_k[None, :], other=0.0)
        b = tl.load(B + ks[:, None] * stride_bk, mask=in_k[:, None] & in_n, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc += tl.load(bias_ptr + rbn, mask=rbn < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0, acc, 0.0)

    C = c_ptr + ram[:, None] * stride_cm + rbn[None, :] * stride_cn
    tl.store(C, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_M"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
