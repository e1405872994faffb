"""EXPECT POLICY; unscreened PASS from elementwise_add on a GPU: C2 PTX within a kernel of the file's own: right, but not what the lab asks for"""

import triton
import triton.language as tl


@triton.jit
def ptx_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    total = tl.inline_asm_elementwise(
        "add.rn.f32 $0, $1, $2;", "=f,f,f", [x, y], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        ptx_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
