# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `acc = 0.0` is a scalar before the loop and a BLOCK_M x BLOCK_N block after its first step: the compiler refuses the loop-carried variable of changing type. It must be `tl.zeros((BLOCK_M, BLOCK_N), tl.float32)`. The interpreter accepts it.
import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, stages, warps):
    return triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [_config(*c) for c in ((128, 256, 64, 3, 8), (128, 128, 64, 3, 8), (128, 64, 64, 4, 4), (64, 64, 32, 4, 4))]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["A"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def gemm(
    A, B, C, bias,
    M, N, K,
    sam, sak, sbk, sbn, scm, scn,
    EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of C; tiles are counted row by row."""
    per_row = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    i = ((pid // per_row) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = ((pid % per_row) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = 0.0
    for k0 in range(0, K, BLOCK_K):
        k = (k0 + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(A + i[:, None] * sam + k[None, :] * sak, mask=(i[:, None] < M) & (k[None, :] < K), other=0)
        b = tl.load(B + k[:, None] * sbk + j[None, :] * sbn, mask=(k[:, None] < K) & (j[None, :] < N), other=0)
        acc += tl.dot(a, b, input_precision="ieee")
    if EPILOGUE:
        acc += tl.load(bias + j, mask=j < N, other=0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0, acc, 0.0)
    tl.store(C + i[:, None] * scm + j[None, :] * scn, acc.to(C.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    gemm[grid](a, b, out, a, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=False)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    gemm[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=True)
    return out
