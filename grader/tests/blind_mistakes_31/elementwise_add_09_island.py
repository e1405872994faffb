# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel, `tl.load(y_ptr + start, mask=alive)` lacks the lanes: the pointer is a scalar and the mask a block, which Triton refuses (mask argument cannot be block type if pointer argument is not a block), so for every n > 0 the kernel neither compiles nor runs in the interpreter; n = 0 is right. It should be `y_ptr + start + lane`.
"""Vector addition: out = x + y."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program adds BLOCK elements, the last one fewer."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    alive = start + lane < n

    a = tl.load(x_ptr + start + lane, mask=alive)
    b = tl.load(y_ptr + start, mask=alive)

    tl.store(out_ptr + start + lane, a + b, mask=alive)


def launch(x, y, out, n):
    """Round the number of programs up, and start them."""
    programs = (n + BLOCK - 1) // BLOCK
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    if x.numel() > 0:
        launch(x, y, out, x.numel())
    return out
