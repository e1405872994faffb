# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | In _destination, shared by matmul and matmul_bias_relu, a given out that is not contiguous is replaced by a new tensor, so that out stays unwritten and is not returned; a given out must always be used, by its strides.
import torch
import triton
import triton.language as tl


SMALL, MEDIUM, LARGE = 64, 128, 256


def _make(bm, bn, bk, stages, warps, group=8):
    meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP": group}
    return triton.Config(meta, num_stages=stages, num_warps=warps)


CONFIGS = [
    _make(MEDIUM, LARGE, 64, 4, 8),
    _make(LARGE, MEDIUM, 64, 3, 8, group=4),
    _make(MEDIUM, MEDIUM, 64, 4, 8),
    _make(MEDIUM, SMALL, 32, 4, 4),
    _make(SMALL, SMALL, 32, 3, 4),
]


def _prune(configs, named_args, **kwargs):
    top = SMALL if named_args["a_ptr"].dtype == torch.float32 else LARGE
    top = min(top, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= top] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _prune})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def _kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr,
    M, N, K,
    am, ak, bk, bn, cm, cn,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BLOCK_M)
    nn = tl.cdiv(N, BLOCK_N)
    start = (pid // (GROUP * nn)) * GROUP
    size = tl.minimum(nm - start, GROUP)
    tm = start + (pid % (GROUP * nn)) % size
    tn = (pid % (GROUP * nn)) // size

    offs_m = tm.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tn.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    mask_m = offs_m < M
    mask_n = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * am + offs_k[None, :] * ak
    b_ptrs = b_ptr + offs_k[:, None] * bk + offs_n[None, :] * bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=mask_m[:, None], other=0.0)
            b = tl.load(b_ptrs, mask=mask_n[None, :], other=0.0)
        else:
            left = offs_k < K - k
            a = tl.load(a_ptrs, mask=mask_m[:, None] & left[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=left[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * ak
        b_ptrs += BLOCK_K * bk

    if HAS_BIAS:
        bias = tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0)
        acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)

    tl.store(
        c_ptr + offs_m[:, None] * cm + offs_n[None, :] * cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=mask_m[:, None] & mask_n[None, :],
    )


def _destination(a, b, out):
    """Where the product goes: out, or a new matrix."""
    shape = (a.shape[0], b.shape[1])
    if out is not None and out.is_contiguous():
        return out
    return torch.empty(shape, device=a.device, dtype=a.dtype)


def _launch(a, b, c, bias, has_bias):
    M, K = a.shape
    _, N = b.shape
    _kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, c, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        HAS_BIAS=has_bias,
    )  # fmt: skip
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Product of a and b."""
    return _launch(a, b, _destination(a, b, out), a, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Product of a and b, plus bias, through a ReLU."""
    return _launch(a, b, _destination(a, b, out), bias, True)
