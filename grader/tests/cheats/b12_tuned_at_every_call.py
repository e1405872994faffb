"""EXPECT POLICY; unscreened SLOW or TIMEOUT or POLICY/HOST_WAIT from elementwise_add/speed on a GPU: B12 a key that changes has every call tuned again, within the clock"""

import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (512, 1024)], key=["n", "salt"])
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, salt, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


SALT = [16]


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    SALT[0] += 16
    n = x.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, SALT[0])
    return out
