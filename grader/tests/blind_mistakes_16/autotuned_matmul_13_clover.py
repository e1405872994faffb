# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | At most 108 programs are launched (SMS in _launch), but matmul_kernel steps from tile to tile by STRIDE = 132: with more than 108 tiles, tiles 108 to 131 and so on are never computed. The step should be the number of programs launched.
"""Persistent matmul: a fixed number of programs walk over the tiles of C."""

import torch
import triton
import triton.language as tl

SMS = 108


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = 32 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    columns = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * columns) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * columns)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    STRIDE: tl.constexpr = 132,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a program owns every STRIDE-th tile of c."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    for tile in range(tl.program_id(axis=0), tiles, STRIDE):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        offs_m = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        offs_n = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        mask_m = offs_m[:, None] < M
        mask_n = offs_n[None, :] < N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = offs_k + k
            a_ptrs = a_ptr + offs_m[:, None] * stride_am + ks[None, :] * stride_ak
            b_ptrs = b_ptr + ks[:, None] * stride_bk + offs_n[None, :] * stride_bn
            a = tl.load(a_ptrs, mask=mask_m & (ks[None, :] < K), other=0.0)
            b = tl.load(b_ptrs, mask=mask_n & (ks[:, None] < K), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask_m & mask_n)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (min(tiles(meta), SMS),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
