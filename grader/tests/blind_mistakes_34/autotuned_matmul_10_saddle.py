# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel is persistent, and acc is set to zero once before the loop over tiles, not for each tile: every later tile of a program contains the sums of its earlier tiles (with bias and ReLU in them where fused); shows where there are more tiles than programs (4 on a CPU, one for each SM on a GPU); should be tl.zeros inside the loop over tiles. (2) tl.dot(x, y, acc) lacks input_precision="ieee": on a GPU fp32 inputs are multiplied as TF32, and fp32 results lose digits; both functions
"""Persistent matrix product: as many programs as the GPU has multiprocessors walk over all tiles."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result can fill; small ones for fp32."""
    largest = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        largest = min(largest, 64)
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= largest]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    within = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP_M)
    return (first + within % height) * BM, within // height * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    lane_m = tl.arange(0, BM).to(tl.int64)
    lane_n = tl.arange(0, BN).to(tl.int64)
    lane_k = tl.arange(0, BK).to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BM, BN, 8)
        rows = m + lane_m
        cols = n + lane_n
        for k in range(0, K, BK):
            ks = k + lane_k
            x = tl.load(
                a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
                mask=(rows < M)[:, None] & (ks < K)[None, :],
                other=0.0,
            )
            y = tl.load(
                b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
                mask=(ks < K)[:, None] & (cols < N)[None, :],
                other=0.0,
            )
            acc = tl.dot(x, y, acc)
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)
        tl.store(
            c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(rows < M)[:, None] & (cols < N)[None, :],
        )


def _programs(device):
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 4


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    most = _programs(a.device)
    grid = lambda meta: (min(most, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
