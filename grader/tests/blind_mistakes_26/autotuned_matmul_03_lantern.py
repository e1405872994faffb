# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel, the step along K: `hop` is BLOCK_K * stride_ak, and `b_tile += hop` moves b by it, too; b should move by BLOCK_K * stride_bk. Shows in both functions where K > BLOCK_K (32 in the smallest config) and the two strides differ, as for two contiguous matrices; NT with a contiguous a is right; a transposed a with a larger stride makes it read behind b. (2) matmul_kernel, the epilogue: `tl.where(acc > 0.0, acc + bias[None, :], 0.0)` tests the sum before the bias is added, so negative results stay where sum > 0 > sum + bias, and positive ones become 0 where sum <= 0 < sum + bias; shows in nearly every case of matmul_bias_relu, also with K <= BLOCK_K. Should be `tl.maximum(acc + bias[None, :], 0.0)`.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(m, n, 64, stages, 8) for m, n in ((128, 256), (256, 128)) for stages in (3, 4)]
CONFIGS += [_config(128, 128, 64, 3, 8), _config(64, 128, 64, 3, 4), _config(64, 64, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    row = first + within % height
    col = within // height
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    col = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    k_of_a = tl.arange(0, BLOCK_K).to(tl.int64)[None, :]
    k_of_b = tl.arange(0, BLOCK_K).to(tl.int64)[:, None]
    a_tile = a_ptr + row * stride_am + k_of_a * stride_ak
    b_tile = b_ptr + k_of_b * stride_bk + col * stride_bn
    hop = tl.full((), BLOCK_K, tl.int64) * stride_ak

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        x = tl.load(a_tile, mask=(row < M) & (k_of_a < left), other=0.0)
        y = tl.load(b_tile, mask=(k_of_b < left) & (col < N), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
        a_tile += hop
        b_tile += hop

    if BIAS_RELU:
        at = n + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + at, mask=at < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0.0, acc + bias[None, :], 0.0)

    tl.store(
        c_ptr + row * stride_cm + col * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(row < M) & (col < N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
