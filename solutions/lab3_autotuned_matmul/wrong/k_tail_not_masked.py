"""EXPECT OUT_OF_BOUNDS/READ from matmul, hint 3: S18 rows and columns are masked, K is not"""

import torch
import triton
import triton.language as tl

TILES = [
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
    triton.Config({"BM": 32, "BN": 64, "BK": 64}, num_warps=4, num_stages=3),
]


@triton.autotune(TILES, key=["M", "N", "K"])
@triton.jit
def mm(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    rows = (pid // tiles_n) * BM + tl.arange(0, BM)[:, None]
    cols = (pid % tiles_n) * BN + tl.arange(0, BN)[None, :]
    ks = tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a_ptr + rows * sam + (start + ks)[None, :] * sak, mask=rows < M, other=0.0)
        y = tl.load(b_ptr + (start + ks)[:, None] * sbk + cols * sbn, mask=cols < N, other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(c_ptr + rows * scm + cols * scn, total.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    result = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)

    mm[grid](
        a, b, result, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), result.stride(0), result.stride(1),
    )  # fmt: skip
    return result
