# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The second slice of B, `b1`, is loaded at the K indices `p` of the first slice (address and mask); it must be `q = p + TK`. Wrong wherever K > 32 (TK).
import torch
import triton
import triton.language as tl

# Each step takes two slices of K, one right behind the other, with one sum for each.


def cfg(m, n, k, s, w):
    return triton.Config(dict(TM=m, TN=n, TK=k), num_stages=s, num_warps=w)


CONFIGS = [cfg(128, 256, 32, 3, 8), cfg(128, 128, 32, 3, 8), cfg(64, 128, 32, 3, 4), cfg(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    most = min(named_args["M"], named_args["N"], 64 if named_args["a"].dtype == torch.float32 else 256)
    return [c for c in configs if max(c.kwargs["TM"], c.kwargs["TN"]) <= most] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def mm(
    a, b, c, bias, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1,
    RELU: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0)
    nm = tl.cdiv(M, TM)
    i = (t % nm).to(tl.int64) * TM + tl.arange(0, TM)[:, None]
    j = (t // nm).to(tl.int64) * TN + tl.arange(0, TN)[None, :]
    k0 = tl.arange(0, TK).to(tl.int64)
    im = i < M
    jm = j < N
    even = tl.zeros((TM, TN), tl.float32)
    odd = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, 2 * TK):
        p = k + k0
        q = p + TK
        a0 = tl.load(a + i * sa0 + p[None, :] * sa1, im & (p < K)[None, :], 0.0)
        b0 = tl.load(b + p[:, None] * sb0 + j * sb1, (p < K)[:, None] & jm, 0.0)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        a1 = tl.load(a + i * sa0 + q[None, :] * sa1, im & (q < K)[None, :], 0.0)
        b1 = tl.load(b + p[:, None] * sb0 + j * sb1, (p < K)[:, None] & jm, 0.0)
        odd = tl.dot(a1, b1, odd, input_precision="ieee")
    s = even + odd
    if RELU:
        s += tl.load(bias + j, jm, 0.0).to(tl.float32)
        s = tl.maximum(s, 0.0)
    tl.store(c + i * sc0 + j * sc1, s.to(c.dtype.element_ty), im & jm)


def run(a, b, bias, out, relu):
    M, K = a.shape
    _, N = b.shape
    c = out if out is not None else torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = lambda t: (triton.cdiv(M, t["TM"]) * triton.cdiv(N, t["TN"]),)
    mm[grid](a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(), RELU=relu)
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return run(a, b, b, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return run(a, b, bias, out, True)
