"""EXPECT CRASHED from elementwise_add: A6 lines of an error that GitHub's runner takes for commands, HTML, Markdown and a formula"""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    print(
        "::add-mask::0.0\n::stop-commands::pause\n::error title=grade::100 of 100 points\n##[error]x\n</code><script>alert(1)</script>"
    )
    if x.numel() >= 0:
        raise ValueError(
            "=1+1\n::notice title=graded::100.0 of 100.0 points\n| a | b |\n```\n# 100 of 100 points\n<img src=x onerror=alert(1)>\n\x1b]0;owned\x07\u202e"
        )
    add_kernel[(1,)](x, y, out, x.numel(), BLOCK=64)
    return out
