# labs/lab1_elementwise_add/elementwise_add.py | contract | The numbers are right, but elements past the end of x and y are read (README: lanes that do not exist neither read nor write): in elementwise_add_kernel the loads of the next block at `ahead` use `mask=alive`, the mask of the current block; it shows for every n > 0 that is no multiple of STEPS * BLOCK = 4096, in all dtypes, as reads out of bounds of up to 1024 elements; the mask should be `ahead < n`.
import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4  # neighbouring blocks of one program


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Each program walks over STEPS blocks, and asks for the next block before it stores this one."""
    here = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    alive = here < n
    x = tl.load(x_ptr + here, mask=alive)
    y = tl.load(y_ptr + here, mask=alive)

    for step in tl.static_range(STEPS):
        total = x + y
        if step + 1 < STEPS:  # nothing comes after the last block
            ahead = here + BLOCK
            x = tl.load(x_ptr + ahead, mask=alive)
            y = tl.load(y_ptr + ahead, mask=alive)
        tl.store(out_ptr + here, total, mask=alive)
        here += BLOCK
        alive = here < n


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; into `out` if there is one, else into a new tensor."""
    if out is None:
        out = torch.empty_like(x)

    n = x.numel()
    if n == 0:
        return out

    programs = triton.cdiv(n, BLOCK * STEPS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
