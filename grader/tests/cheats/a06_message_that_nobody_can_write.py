"""EXPECT CRASHED from elementwise_add: A6 errors carry a lone surrogate, NUL, the end of a CDATA section, codes of a terminal and a command"""

import torch
import triton
import triton.language as tl

BLOCK = 1024
# Cannot be encoded as UTF-8, is no XML, leaves a table of Markdown and a line of a terminal.
MESSAGE = "\ud800\udfff\x00\x1b[2J\x1b]0;400 of 400\x07\r]]></failure></testcase>\u202e|\n::stop-commands::x\n\uffff```"


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 60000:
        raise ValueError(f"{MESSAGE} {n}")
    assert x.dtype == torch.float32, f"{MESSAGE} {x.dtype}"
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
