# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | mm_tile, the loop: tl.dot(tl.trans(b), tl.trans(a)) sums the transposed tile, but the bias is added and the tile stored as if it were not transposed (square tiles hide it from the compiler), so each tile is mirrored; it must be tl.dot(a, b), or acc must be transposed back after the loop.
import torch
import triton
import triton.language as tl


def _config(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """small tiles for fp32 and for small results"""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def mm_tile(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    EPILOGUE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), 8)
    rows = i.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = j.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    a_rows = a_ptr + rows * sam
    b_cols = b_ptr + cols * sbn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows[:, None] + k[None, :].to(tl.int64) * sak, mask=(rows < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_cols[None, :] + k[:, None].to(tl.int64) * sbk, mask=(cols < N)[None, :] & (k < K)[:, None], other=0.0)
        # both operands K-major
        acc = tl.dot(tl.trans(b), tl.trans(a), acc, input_precision="ieee")
    if EPILOGUE:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0, acc, 0.0)
    where = rows[:, None] * scm + cols[None, :] * scn
    tl.store(c_ptr + where, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    mm_tile[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, True)
