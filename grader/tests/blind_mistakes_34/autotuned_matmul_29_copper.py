# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel, `acc += tl.dot(a, b, acc, input_precision="ieee")` adds the accumulator twice, as tl.dot already returns acc + a @ b: each step doubles what was there. matmul is wrong wherever K is above BLOCK_K (32), earlier blocks weighted by powers of 2 (inf for long K); matmul_bias_relu is wrong for every K, because acc starts from the bias and that is doubled as well. It should be `acc = tl.dot(a, b, acc, ...)` or `acc += tl.dot(a, b, ...)`.
"""Matrix product tile by tile, autotuned; the sums of the fused version start from the bias."""

import torch
import triton
import triton.language as tl

BK = 32


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": BK, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Tiles are 32 deep everywhere: shared memory then has room for more stages.
CONFIGS = [
    _config(128, 256, 4, 8),
    _config(128, 256, 6, 8),
    _config(256, 128, 6, 8),
    _config(128, 128, 5, 8),
    _config(64, 64, 5, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    grid_m, grid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * grid_n)
    height = min(GROUP_M, grid_m - group * GROUP_M)
    pos = tile % (GROUP_M * grid_n)
    pid_m = group * GROUP_M + pos % height
    pid_n = pos // height
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    r = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    c = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    in_rows = r < M
    in_cols = c < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + c, mask=in_cols, other=0.0)
        acc += bias.to(tl.float32)[None, :]

    for k0 in range(0, K, BLOCK_K):
        d = (k0 + tl.arange(0, BLOCK_K)).to(tl.int64)
        in_depth = d < K
        a = tl.load(
            a_ptr + r[:, None] * stride_am + d[None, :] * stride_ak,
            mask=in_rows[:, None] & in_depth[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + d[:, None] * stride_bk + c[None, :] * stride_bn,
            mask=in_depth[:, None] & in_cols[None, :],
            other=0.0,
        )
        acc += tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = tl.maximum(acc, 0.0)
    tl.store(
        c_ptr + r[:, None] * stride_cm + c[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=in_rows[:, None] & in_cols[None, :],
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
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
