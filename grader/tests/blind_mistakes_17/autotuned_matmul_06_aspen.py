# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel uses the module variable GROUP_ROWS, a plain int; Triton refuses to compile a kernel that reads a global variable which is not a tl.constexpr (the interpreter does not notice). It should be GROUP_ROWS = tl.constexpr(8), or a constexpr parameter GROUP_M of the kernel.
"""A tiled matrix product; the autotuner picks the tile, the width of a group is fixed."""

import torch
import triton
import triton.language as tl

GROUP_ROWS = 8


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    row = group * GROUP_M + within % height
    col = within // height
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_ROWS)
    i = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ka = (k + tl.arange(0, BLOCK_K)[None, :]).to(tl.int64)
        kb = (k + tl.arange(0, BLOCK_K)[:, None]).to(tl.int64)
        a = tl.load(a_ptr + i * stride_am + ka * stride_ak, mask=(i < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * stride_bk + j * stride_bn, mask=(kb < K) & (j < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")

    if BIAS_RELU:
        total += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)

    result = total.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, result, mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
