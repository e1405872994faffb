# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel, mask of the load of b: `k_inside[None, :] & n_inside[None, :]` combines blocks of (1, BLOCK_K) and (1, BLOCK_N), which cannot be broadcast because BLOCK_K differs from BLOCK_N in every config: no call of either function runs or compiles. It should be `k_inside[:, None] & n_inside[None, :]`.
"""Matrix product tile by tile, autotuned, with an optional bias and ReLU."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 32, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_down = tl.cdiv(M, BLOCK_M)
    n_across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * n_across)
    top = group * GROUP_M
    height = tl.minimum(n_down - top, GROUP_M)
    rest = tile - top * n_across
    return (top + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    m_inside = offs_m < M
    n_inside = offs_n < N

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _step in range(tl.cdiv(K, BLOCK_K)):
        k_inside = offs_k < K
        a_tile = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=m_inside[:, None] & k_inside[None, :],
            other=0.0,
        )
        b_tile = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=k_inside[None, :] & n_inside[None, :],
            other=0.0,
        )
        total = tl.dot(a_tile, b_tile, total, input_precision="ieee")
        offs_k += BLOCK_K

    if BIAS_RELU:
        bias = tl.load(bias_ptr + offs_n, mask=n_inside, other=0.0)
        total += bias.to(tl.float32)[None, :]
        total = tl.where(total > 0.0, total, 0.0)

    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        total.to(c_ptr.dtype.element_ty),
        mask=m_inside[:, None] & n_inside[None, :],
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
