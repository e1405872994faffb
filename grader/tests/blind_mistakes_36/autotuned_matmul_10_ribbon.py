# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `matmul_kernel`, `advance = BLOCK_K * stride_ak` moves both blocks of pointers: b must move by BLOCK_K * stride_bk. Wrong in both functions wherever K > BLOCK_K (the first block along K alone is right) and the two matrices have different strides along K, as for two contiguous ones; right where these strides are equal, as for contiguous a with b transposed. (2) The epilogue works on `c = acc.to(c_ptr.dtype.element_ty)`, so in fp16 and bf16 the sum is rounded before the bias is added, and again after: matmul_bias_relu loses digits in those dtypes, fp32 is right. Bias and ReLU belong on the fp32 acc, before the conversion.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl
from triton import cdiv


def _config(tile_m, tile_n, tile_k, stages, warps):
    return triton.Config(
        {"BLOCK_M": tile_m, "BLOCK_N": tile_n, "BLOCK_K": tile_k, "GROUP_M": 8},
        num_warps=warps,
        num_stages=stages,
    )


CONFIGS = [
    _config(128, 256, 64, stages=3, warps=8),
    _config(256, 128, 64, stages=3, warps=8),
    _config(128, 128, 64, stages=4, warps=8),
    _config(128, 64, 64, stages=4, warps=4),
    _config(64, 64, 64, stages=3, warps=4),
    _config(32, 64, 32, stages=4, warps=4),
]


def _fits(config, most):
    return config.kwargs["BLOCK_M"] <= most and config.kwargs["BLOCK_N"] <= most


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32, which has no tensor cores, no larger than 64."""
    most = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        most = min(most, 64)
    return [config for config in configs if _fits(config, most)] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    full = GROUP_M * tiles_n
    top = tile // full * GROUP_M
    height = tl.minimum(GROUP_M, tiles_m - top)
    number = tile % full
    column = number // height
    row = top + number - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    along_a = tl.arange(0, BLOCK_K)[None, :]
    along_b = tl.arange(0, BLOCK_K)[:, None]

    a_ptrs = a_ptr + rows * stride_am + along_a * stride_ak
    b_ptrs = b_ptr + along_b * stride_bk + cols * stride_bn
    advance = BLOCK_K * stride_ak
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M) & (along_a < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & (along_b < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += advance
        b_ptrs += advance

    c = acc.to(c_ptr.dtype.element_ty)
    if BIAS_RELU:
        c = tl.maximum(c + tl.load(bias_ptr + cols, mask=cols < N, other=0.0), 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[lambda meta: (cdiv(M, meta["BLOCK_M"]) * cdiv(N, meta["BLOCK_N"]),)](
        a, b, out, bias, M, N, K,
        stride_am=a.stride(0), stride_ak=a.stride(1),
        stride_bk=b.stride(0), stride_bn=b.stride(1),
        stride_cm=out.stride(0), stride_cn=out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
