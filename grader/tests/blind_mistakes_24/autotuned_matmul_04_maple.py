# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | reduce_kernel adds the slices `tl.static_range(1, SPLITS)` to a sum that starts from zeros, so the partial sum of slice 0 is never added (and with one slice the sum is 0). It should be `tl.static_range(SPLITS)`.
"""Split K: SPLITS programs share a tile, each stores its partial sum, and a second kernel adds them up.

No atomics, so two runs give the same bits.
"""

import torch
import triton
import triton.language as tl


def cfg(bm, bn, bk, stages, warps):
    return triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [cfg(128, 256, 64, 3, 8), cfg(128, 128, 64, 3, 8), cfg(64, 128, 32, 4, 4), cfg(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Column by column: neighbours in time share the columns of b."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    return tile % tiles_m * BLOCK_M, tile // tiles_m * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn,
    SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """work[s] = a[:, slice s] @ b[slice s, :] in fp32, where work is (SPLITS, M, N), contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    s = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]

    # whole blocks for every slice; the last slices may have fewer, or none
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    begin = s * length
    end = tl.minimum(begin + length, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        ka = ks[None, :]
        kb = ks[:, None]
        a = tl.load(a_ptr + rows * stride_am + ka * stride_ak, mask=(rows < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * stride_bk + cols * stride_bn, mask=(kb < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(work_ptr + (s.to(tl.int64) * M + rows) * N + cols, acc, mask=(rows < M) & (cols < N))


@triton.jit
def reduce_kernel(
    work_ptr, c_ptr, bias_ptr, total, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of all slices, with the epilogue, to c. total is M * N; element i is (i // N, i % N)."""
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    row = i // N
    col = i % N
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in tl.static_range(1, SPLITS):
        acc += tl.load(work_ptr + s * total + i, mask=inside, other=0.0)
    if BIAS_RELU:
        acc += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # A large result has tiles enough for all SMs.
    splits = 4 if M * N <= 1 << 22 else 1
    work = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    partial_kernel[tiles](a, b, work, M, N, K, *a.stride(), *b.stride(), SPLITS=splits)
    block = 1024
    reduce_kernel[(triton.cdiv(M * N, block),)](
        work, out, bias, M * N, N, *out.stride(), BIAS_RELU=bias_relu, SPLITS=splits, BLOCK=block
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue is in reduce_kernel, still in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
