# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel decides on the epilogue by "if bias_ptr is not None", but matmul passes a as the bias, so matmul adds the first N elements of the memory of a as a bias to its sums and clamps them at 0 (and reads past a where a has fewer than N elements). Wrong in matmul in every case; matmul_bias_relu is right. matmul should pass None, or the kernel should have a flag of its own.
"""Matrix product; one kernel with an optional bias and ReLU."""

import torch
import triton
import triton.language as tl


def _configs():
    """Tiles from large to small."""
    shapes = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 4), (64, 128, 64, 3, 4), (64, 64, 32, 3, 4)]
    configs = []
    for bm, bn, bk, stages, warps in shapes:
        meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}
        configs.append(triton.Config(meta, num_stages=stages, num_warps=warps))
    return configs


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column where a tile of c begins."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    start = group * GROUP_M
    count = tl.minimum(tl.cdiv(M, BLOCK_M) - start, GROUP_M)
    number = tile % (GROUP_M * tiles_n)
    return (start + number % count) * BLOCK_M, (number // count) * BLOCK_N


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    rn = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_mask = (rm < M)[:, None] & (rk < K)[None, :]
        b_mask = (rk < K)[:, None] & (rn < N)[None, :]
        a = tl.load(a_ptr + (rm[:, None] * stride_am + rk[None, :] * stride_ak), mask=a_mask, other=0.0)
        b = tl.load(b_ptr + (rk[:, None] * stride_bk + rn[None, :] * stride_bn), mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(c_ptr + (rm[:, None] * stride_cm + rn[None, :] * stride_cn), acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def _launch(a, b, bias, out):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N)."""
    return _launch(a, b, a, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) for a bias (N,)."""
    return _launch(a, b, bias, out)
