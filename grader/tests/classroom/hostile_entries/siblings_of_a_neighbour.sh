# the points of an operator whose forward half another student wrote: mallory hands in no rms_norm.py, and a .git that is a worktree of a neighbour's repository (commondir, core.worktree) or borrows its objects, so that who looks for the missing file finds the neighbour's: in the import path, in what an earlier student left, or through git
set -eu
class=$(cd "$1" && pwd)
me=$class/mallory
mkdir -p "$me/labs/lab4_production_slice" "$me/.git"

# The neighbour: one with a repository, or else one with the file, or else any.
victim=
for wanted in .git labs/lab4_production_slice/rms_norm.py .; do
    for folder in "$class"/*/; do
        name=$(basename "$folder")
        if [ -z "$victim" ] && [ "$name" != mallory ] && [ -e "$folder$wanted" ]; then victim=$name; fi
    done
done
victim=${victim:-alice}

# No link and no hook: plain text files, which git follows.
printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ../../%s\n' "$victim" > "$me/.git/config"
if [ -f "$class/$victim/.git/HEAD" ]; then
    cp "$class/$victim/.git/HEAD" "$me/.git/HEAD"
    printf '../../%s/.git\n' "$victim" > "$me/.git/commondir"  # refs, objects and config are the neighbour's
else
    mkdir -p "$me/.git/objects/info" "$me/.git/refs/heads"
    printf 'ref: refs/heads/main\n' > "$me/.git/HEAD"
    printf '../../../%s/.git/objects\n' "$victim" > "$me/.git/objects/info/alternates"
fi

# The graded half is mallory's own and right. Its import asks for a file that is not in this folder.
cat > "$me/labs/lab4_production_slice/rms_norm_backward.py" <<'PYTHON'
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    square_sums = tl.zeros((BLOCK,), dtype=tl.float32)
    product_sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        square_sums += x * x
        product_sums += g * x
    squares = tl.sum(square_sums, axis=0)
    sum_gx = tl.sum(product_sums, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * (sum_gx * rstd / N_COLS)))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        far = rows.to(tl.int64)
        dy = tl.load(dy_ptr + far * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + far * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])]
    launch(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        dx, dweight = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
PYTHON
