"""EXPECT PASS from matmul: c is computed as the transpose of b^T a^T, over a list of configs of its own."""

import torch
import triton
import triton.language as tl

SPACE = [
    triton.Config({"WIDTH": width, "HEIGHT": height, "STEP": 32}, num_warps=4)
    for width in (32, 64)
    for height in (32, 64)
]


@triton.autotune(configs=SPACE, key=["n", "m", "k"])
@triton.jit
def transposed_kernel(
    a, b, c, m, n, k, a_m, a_k, b_k, b_n, c_m, c_n,
    WIDTH: tl.constexpr, HEIGHT: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The accumulator holds (n, m): rows of it are columns of c."""
    x = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    y = tl.program_id(1).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
    acc = tl.zeros((WIDTH, HEIGHT), dtype=tl.float32)
    for z0 in range(0, k, STEP):
        z = z0 + tl.arange(0, STEP)
        bt_mask = (x[:, None] < n) & (z[None, :] < k)
        bt = tl.load(b + x[:, None] * b_n + z[None, :] * b_k, mask=bt_mask, other=0.0)
        a_mask = (y[:, None] < m) & (z[None, :] < k)
        a_tile = tl.load(a + y[:, None] * a_m + z[None, :] * a_k, mask=a_mask, other=0.0)
        acc = tl.dot(bt, tl.trans(a_tile), acc, input_precision="ieee")
    result = acc.T.to(c.dtype.element_ty)  # (HEIGHT, WIDTH)
    tl.store(c + y[:, None] * c_m + x[None, :] * c_n, result, mask=(y[:, None] < m) & (x[None, :] < n))


def matmul(a, b, *, out=None):
    m, k = a.shape
    n = b.shape[-1]
    if out is None:
        out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    transposed_kernel[lambda t: (triton.cdiv(n, t["WIDTH"]), triton.cdiv(m, t["HEIGHT"]))](
        a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride()
    )
    return out
