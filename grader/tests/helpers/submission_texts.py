"""Submissions of lab 1 with a body of choice, and the cases that they are asked for."""

from textwrap import dedent, indent

ADD7, ADD129 = "elementwise_add/n=7,fp32", "elementwise_add/n=129,fp32"
HONEST = dedent("""\
    import triton
    import triton.language as tl

    @triton.jit
    def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n)
        tl.store(out_ptr + offs, x + tl.load(y_ptr + offs, mask=offs < n), mask=offs < n)

    def add(x, y, out):
        if x.numel():
            add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    """)


def function(body: str, head: str = "import ctypes, os, sys, time\n") -> str:
    head = head + HONEST if "add(x, y, out)" in body else head
    return f"{head}def elementwise_add(x, y, *, out=None):\n{indent(dedent(body), '    ')}\n    return out\n"
