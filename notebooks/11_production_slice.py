# %% [markdown]
# # A production slice: kernels as a library
#
# A kernel that works in a test is not yet something that others can build on. They want a function with a
# name they know, a gradient, any shape and dtype, no surprise under `torch.compile`, and less memory than
# before. This page takes the small library of lab 4 through all of it, file by file: softmax, LayerNorm,
# RMSNorm, dropout without a stored mask, and LayerNorm with the Linear layer behind it.

# %%
import ast
import sys
from pathlib import Path

from grader.course.lines_of_code import lines_of_code
from grader.site.notebooks import lesson

library = lesson.production_slice()
for name in library.__all__:
    first = " ".join((getattr(library, name).__doc__ or "").split()).split(". ")[0]
    print(f"{name:<28}{first[:88]}")

# %% [markdown]
# Three functions for each operation, on purpose. `NAME_forward` and `NAME_backward` take `out=` and allocate
# nothing they need not: they are what is timed, and what another kernel author calls. `NAME` is
# differentiable, and what a model calls.
#
# ## One design
#
# The kernels of rows are built alike. A program has one row, and walks it in blocks: once for the sums that
# need the whole row, and once more for the result. Up to `rows.WIDEST` columns a row is one block, and its
# second reading comes from a cache.

# %%
FILES = ("softmax", "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward", "dropout",
         "layer_norm_linear", "layer_norm_linear_backward")  # fmt: skip
FOLDER = Path(library.__path__[0])


def kernels_of(tree):
    """The kernels of a file, with the first sentence of what each says of itself."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
            words = " ".join((ast.get_docstring(node) or "").split())
            yield node.name, words.split(". ")[0].split("; ")[0].rstrip(".")


rows = []
for name in FILES:
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    kernels = list(kernels_of(ast.parse(text))) or [("", "calls kernels of other files")]
    for at, (kernel, words) in enumerate(kernels):
        rows.append(("" if at else f"`{name}.py`", "" if at else lines_of_code(text),
                     f"`{kernel}`" if kernel else "", words.replace("*", r"\*")))  # fmt: skip
lesson.table(("file", "lines of code", "kernel", "what it computes"), rows)

# %% [markdown]
# Lines are counted without blank lines, comments and docstrings. What the files share is in `rows.py`: the
# width of a block, a load in fp32 and a store with a mask, sums of columns, and `on`, which the last sections
# need.

# %%
lesson.excerpt(sys.modules["rows"], "block_of", "load", "store")

# %% [markdown]
# ## Right, in numbers
#
# Right means: as close to the true result as PyTorch's own operator, computed in the same dtype. The truth is
# fp64.

# %%
import torch
import torch.nn.functional as nnf

device = lesson.device()
dtype = torch.bfloat16 if device == "cuda" else torch.float32  # bf16 is wrong in the interpreter
torch.manual_seed(8)
x = torch.randn(6, 1000, device=device, dtype=dtype)
w, b = (torch.randn(1000, device=device, dtype=dtype) for _ in range(2))
linear, c = (
    torch.randn(48, 1000, device=device, dtype=dtype) / 32,
    torch.randn(48, device=device, dtype=dtype),
)

OPERATORS = {
    "softmax": (lambda x: torch.softmax(x, -1), library.fused_softmax, (x,)),
    "layer_norm": (lambda x, w, b: nnf.layer_norm(x, x.shape[-1:], w, b), library.layer_norm, (x, w, b)),
    "rms_norm": (lambda x, w: nnf.rms_norm(x, x.shape[-1:], w, 1e-6), library.rms_norm, (x, w)),
    "layer_norm_linear": (
        lambda x, w, b, linear, c: nnf.linear(nnf.layer_norm(x, x.shape[-1:], w, b), linear, c),
        library.layer_norm_linear,
        (x, w, b, linear, c),
    ),
}


def worst(got, truth):
    """The largest error, of the largest value."""
    return ((got.double() - truth).abs().max() / truth.abs().max()).item()


rows = []
for name, (theirs, ours, inputs) in OPERATORS.items():
    truth = theirs(*(one.double() for one in inputs))
    rows.append((name, f"{worst(ours(*inputs), truth):.1e}", f"{worst(theirs(*inputs), truth):.1e}"))
lesson.table(("forward", "ours", "PyTorch"), rows)

# %% [markdown]
# Gradients the same way, for every input. `torch.autograd.gradcheck` is no help here: it compares with finite
# differences and wants fp64 throughout, and a kernel that sums in fp32 fails it while being right.


# %%
def gradients(function, inputs, dy):
    """Of every input."""
    leaves = [one.detach().clone().requires_grad_() for one in inputs]
    return torch.autograd.grad(function(*leaves), leaves, dy)


rows = []
for name, (theirs, ours, inputs) in OPERATORS.items():
    dy = torch.randn_like(theirs(*inputs))
    truth = gradients(theirs, [one.double() for one in inputs], dy.double())
    found = [[worst(got, right) for got, right in zip(gradients(function, inputs, dy), truth, strict=True)]
             for function in (ours, theirs)]  # fmt: skip
    rows.append((name, *(", ".join(f"{error:.0e}" for error in errors) for errors in found)))
lesson.table(("gradients of each input", "ours", "PyTorch"), rows)

# %% [markdown]
# ## softmax.py: a block may hold nothing
#
# Maximum and sum of a row come from the loop of lab 2. One case breaks it: a row that begins with a whole
# block of -inf, as a mask in attention makes it. With a first maximum of -inf, `exp(-inf - -inf)` is NaN.
# From the lowest finite number on, such a block adds 0 to the sum.

# %%
LOWEST = torch.finfo(torch.float32).min
masked = torch.full((1, 20000), -torch.inf, device=device)
masked[0, -2:] = 1.0
block = masked[0, :16384]
for word, top in (("-inf", torch.tensor(-torch.inf)), ("the lowest number", torch.tensor(LOWEST))):
    higher = torch.maximum(top.to(device), block.max())
    print(f"from {word}: the sum after a block of -inf is", torch.exp(block - higher).sum().item())
print("the library:", library.fused_softmax_forward(masked)[0, -3:].tolist())

# %% [markdown]
# ## layer_norm.py: a large mean
#
# The variance is the mean of squares minus the square of the mean. Where the mean is large both are large and
# nearly equal, and the digits in which they differ were rounded away. The library walks the row once for the
# mean, and again for the squares of the differences from it.

# %%
offset = (torch.randn(4, 1000, device=device) + 1000.0).float()
ones, zeros = torch.ones(1000, device=device), torch.zeros(1000, device=device)
truth = nnf.layer_norm(offset.double(), (1000,))
mean = offset.mean(-1, keepdim=True)
textbook = (offset - mean) * torch.rsqrt((offset * offset).mean(-1, keepdim=True) - mean * mean + 1e-5)
rows = [("mean of squares minus square of the mean, fp32", f"{worst(textbook, truth):.1e}"),
        ("the library", f"{worst(library.layer_norm(offset, ones, zeros), truth):.1e}"),
        ("PyTorch", f"{worst(nnf.layer_norm(offset, (1000,)), truth):.1e}")]  # fmt: skip
lesson.table(("rows around 1000", "error"), rows)

# %% [markdown]
# ## layer_norm_backward.py: one kernel by rows, one by columns
#
# With $n$ the normalised row and $g = dy \cdot w$,
#
# $$dx = \mathrm{rstd}\,\bigl(g - \overline{g} - n\,\overline{g\,n}\bigr)$$
#
# The bars are means over the row: mean and deviation depend on every element of it. Check it in fp64, before
# any kernel:

# %%
X, W, B, DY = (one.double() for one in (x, w, b, torch.randn_like(x)))
mean, rstd = X.mean(-1, keepdim=True), torch.rsqrt(X.var(-1, unbiased=False, keepdim=True) + 1e-5)
n, g = (X - mean) * rstd, DY * W
dx = rstd * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
right = gradients(lambda x, w, b: nnf.layer_norm(x, x.shape[-1:], w, b), (X, W, B), DY)
found = (dx, (DY * n).sum(0), DY.sum(0))
for name, mine, theirs in zip(("dx", "dweight", "dbias"), found, right, strict=True):
    print(f"{name:<8}largest difference {(mine - theirs).abs().max().item():.0e}")

# %% [markdown]
# `dx` belongs to a row, and its kernel has a program for each. `dweight` and `dbias` are sums over all rows,
# so their kernel has a program for some columns of a group of rows. Each group has a row of sums of its own,
# and `column_sums` adds these up. With atomic additions one kernel would do, but the order of the additions,
# and so the last digits, would change from run to run. Here they do not:

# %%
dy = torch.randn_like(x)
first, second = (library.layer_norm_backward(dy, x, w) for _ in range(2))
print("the same bits in two runs:", all(torch.equal(*pair) for pair in zip(first, second, strict=True)))

# %% [markdown]
# ## rms_norm.py and rms_norm_backward.py: the same without a mean
#
# RMSNorm divides by the root of the mean square, and subtracts nothing. One sum over the row is enough, so
# the forward pass walks it twice, where LayerNorm does three times. In `dx` the mean of $g$ is missing, and
# there is no bias.

# %%
rstd = torch.rsqrt((X * X).mean(-1, keepdim=True) + 1e-6)
n = X * rstd
dx = rstd * (g - n * (g * n).mean(-1, keepdim=True))
right = gradients(lambda x, w: nnf.rms_norm(x, x.shape[-1:], w, 1e-6), (X, W), DY)
print(f"dx      largest difference {(dx - right[0]).abs().max().item():.0e}")

# %% [markdown]
# ## dropout.py: a seed in place of a mask
#
# Dropout keeps each element with probability 1 - p and scales it. Its gradient needs the same choice. PyTorch
# stores the choice; the library draws it again, from a generator that is a function of seed and position.

# %%
p, seed = 0.3, 7
many = torch.ones(2**17, device=device)
one, again, other = (library.dropout_forward(many, p=p, seed=s) for s in (seed, seed, seed + 1))
kept = (one != 0).float().mean().item()
bound = 4 * (p * (1 - p) / many.numel()) ** 0.5
print("same seed, same choice:    ", torch.equal(one, again))
agreeing = ((one != 0) == (other != 0)).float().mean().item()
print("another seed, the same:    ", f"{agreeing:.3f} of elements agree;",
      f"by chance {p * p + (1 - p) * (1 - p):.3f}")  # fmt: skip
print("kept:                      ", f"{kept:.4f}; {1 - p:.4f} is expected, give or take {bound:.4f}")
print("kept values scaled exactly:", torch.equal(one[one != 0], torch.full_like(one[one != 0], 1 / (1 - p))))

# %%
leaf = torch.randn(4096, device=device, requires_grad=True)
y = library.dropout(leaf, p=p, seed=seed)
(gradient,) = torch.autograd.grad(y.sum(), leaf)
print("gradient is 0 exactly where the result is:", torch.equal(gradient == 0, y == 0))
print(
    "evaluation returns x itself:              ",
    library.dropout(leaf, p=p, seed=seed, training=False) is leaf,
)
for edge in (0.0, 1.0):
    kept_all = library.dropout_forward(many, p=edge, seed=seed)
    print(f"p = {edge}: {kept_all.sum().item():,.0f} of {many.numel():,} left")

# %% [markdown]
# The generator, Philox, turns a counter and the seed into four numbers. `tl.rand` would give each element a
# counter, and use one number of the four. The library gives a counter to four elements, so it needs a quarter
# of the arithmetic. Which number an element gets follows from its position alone, so the width of a block,
# which the autotuner chooses, cannot change the choice.
#
# A seed must differ from call to call, and from layer to layer, or the same neurons drop out together. That
# is the caller's task here, as it is with JAX; PyTorch hides it in a global generator.
#
# ## layer_norm_linear.py: when fusion is algebra
#
# Normalising inside a product would compute each row's statistics once for each tile of the result. The
# library moves the statistics behind the product instead:
#
# `y = rstd * (x @ (gamma * W).T - mean * colsum(gamma * W)) + (beta @ W.T + bias)`
#
# Check that it is the same, in fp64, before any kernel:

# %%
wide = [one.double() for one in (x, w, b, linear, c)]
X, gamma, beta, W, bias = wide
mean, rstd = X.mean(-1, keepdim=True), torch.rsqrt(X.var(-1, unbiased=False, keepdim=True) + 1e-5)
scaled = gamma * W
y = rstd * (X @ scaled.T - mean * scaled.sum(-1)) + (W @ beta + bias)
print(
    "largest difference:",
    f"{(y - nnf.linear(nnf.layer_norm(X, X.shape[-1:], gamma, beta), W, bias)).abs().max().item():.1e}",
)

# %%
fused = lesson.bench("layer_norm_linear_forward", "h200-bench-lab4.json")
rows = []
for one in fused.sizes:
    size = ", ".join(f"{key}={value}" for key, value in one.size.items())
    rows.append((size, *(f"{arm.ratio:.2f}" if arm.ratio else arm.status for arm in one.arms.values())))
lesson.table((f"speed, {fused.sizes[0].baseline} = 1", *fused.sizes[0].arms), rows)

# %% [markdown]
# The gain has a cap: fusion saves one write and one read of the normalised matrix, and nothing of the
# product. Where K and N are large, the product takes so long that there is little to gain; the table ends
# near 1 there.
#
# ## layer_norm_linear_backward.py: computed again, not kept
#
# The gradient of the weight needs the normalised rows, which the forward pass never wrote. Keeping them would
# cost as much memory as `x`. The backward pass computes them again with the kernel of `layer_norm.py`, and
# takes `dx` from that of `layer_norm_backward.py`.
#
# ## Memory: what is kept until the backward pass
#
# Autograd says what a function saves. Below, bytes that are neither an input nor the result, so memory that
# exists for the gradient alone.


# %%
def kept_bytes(function, inputs):
    """Bytes saved for the backward pass, without the inputs and the result."""
    leaves, saved = [one.detach().clone().requires_grad_() for one in inputs], {}

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = function(*leaves)
    known = {one.untyped_storage().data_ptr() for one in (*leaves, y)}
    return sum(size for place, size in saved.items() if place not in known)


dropping = {"dropout": (lambda x: nnf.dropout(x, p), lambda x: library.dropout(x, p=p, seed=seed), (x,))}
rows = []
for name, (theirs, ours, inputs) in (OPERATORS | dropping).items():
    cells = [f"{kept_bytes(function, inputs):,}" for function in (ours, theirs)]
    rows.append((name, f"{x.numel() * x.element_size():,}", *cells))
lesson.table(("operator", "bytes of x", "ours keeps", "PyTorch keeps"), rows)

# %% [markdown]
# The library keeps inputs, and softmax its own result. PyTorch keeps the mask of dropout, for LayerNorm +
# Linear the whole normalised matrix, and one or two numbers for each row of a norm that is one kernel there.
# RMSNorm is not on a CPU.
#
# On a GPU the allocator counts. The record has each operator alone, and all four in a row, as eager calls and
# compiled:

# %%
step = lesson.told("training step")
bytes_of_x = step.figures["bytes_of_x"]
found = {}
for name, value in step.figures.items():
    operator, _, rest = name.partition(", ")
    arm, _, what = rest.rpartition(", ")
    if arm:
        found.setdefault((operator, arm), {})[what] = value
rows = [(operator, arm, f"{facts['kept_bytes'] / bytes_of_x:.2f}", f"{facts['peak_bytes'] / bytes_of_x:.2f}",
         f"{facts['median_us']:,.0f} µs") for (operator, arm), facts in found.items()]  # fmt: skip
lesson.table(
    ("training step", "by", "kept, in sizes of x", "peak, in sizes of x", "forward and backward"), rows
)


# %%
def saved(operator, one, other, what):
    """How much less `one` needs than `other`, in percent."""
    return 100 * (1 - found[operator, one][what] / found[operator, other][what])


ALL = "all four in a row"
lesson.say(
    f"For a matrix of {step.figures['rows']:,.0f} x {step.figures['cols']:,.0f}: dropout keeps "
    f"{saved('dropout', 'lab 4', 'torch', 'kept_bytes'):.0f} % less than PyTorch's; all four in a row keep "
    f"{saved(ALL, 'lab 4', 'torch', 'kept_bytes'):.0f} % less, and a step takes "
    f"{saved(ALL, 'lab 4', 'torch', 'median_us'):.0f} % less time. Compiled against compiled it is "
    f"{saved(ALL, 'lab 4, compiled', 'torch, compiled', 'median_us'):.0f} %."
)

# %% [markdown]
# A compiler may change both: it can compute a value again in place of keeping it, and fuse what stands side
# by side. See what PyTorch's compiled chain keeps, what it needs at its peak, and what it takes. A
# hand-written operator is a wall to such fusion, which is a price to know.
#
# One operator alone starts on an idle GPU, so its time counts what Python does before the first kernel. How
# much that is can be found with another record: Proton timed dropout's kernel by itself.

# %%
import json

session = lesson.told("proton")
root = json.loads(session.texts["tree"])[0]
(scope,) = (one for one in root["children"] if one["frame"]["name"] == "lab 4 dropout")
kernel_us = sum(child["metrics"]["time (ns)"] for child in scope["children"]) / 1e3 / session.figures["calls"]
times_larger = 2 * bytes_of_x / session.figures["lab 4 dropout, bytes"]
both_us, step_us = 2 * kernel_us * times_larger, found["dropout", "lab 4"]["median_us"]
lesson.say(
    f"Dropout's kernel, once forward and once backward, is {both_us:.0f} µs of the {step_us:.0f} µs "
    "of its step. The "
    f"other {step_us - both_us:.0f} µs are the way through Python: an autograd function, an "
    "operator, a launch. "
    f"PyTorch's own way, in C++, takes {found['dropout', 'torch']['median_us']:.0f} µs in all, mask "
    "included. In a row "
    "with other operators that way is hidden behind kernels that still run."
)

# %% [markdown]
# ## Under torch.compile
#
# An operator that the compiler does not know breaks the graph: Python runs in between, and nothing is fused
# across. The library registers its operators with `torch.library.triton_op`, so the compiler sees them, and
# the kernels inside. A process that compiles, and does not interpret, can show that without a GPU: capture
# the graph, and list what it calls.


# %%
def captured():
    import torch

    from grader.site.notebooks.lesson import production_slice

    library = production_slice()
    graphs = []

    class CapturedError(Exception):
        pass

    def keep(graph, _):
        graphs.append(graph)
        raise CapturedError  # nothing runs: there may be no GPU

    def block(x, w, b, linear, c):
        y = library.layer_norm_linear(x, w, b, linear, c)
        y = library.dropout(y, p=0.1, seed=7)
        return library.fused_softmax(library.rms_norm(y, c)) * 2.0

    shapes = (8, 64), (64,), (64,), (32, 64), (32,)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    try:
        torch.compile(block, backend=keep, fullgraph=True)(*inputs)
    except Exception:
        if not graphs:
            raise
    modules = [module for module in graphs[0].modules() if isinstance(module, torch.fx.GraphModule)]
    targets = [str(node.target) for module in modules for node in module.graph.nodes]
    print(f"{len(graphs)} graph; the course's operators in it:")
    for target in dict.fromkeys(one for one in targets if one.startswith("course.")):
        print(" ", target)


lesson.apart(captured)

# %% [markdown]
# `fullgraph=True` makes a graph break an error, so use it in a test. What the library does for it:
#
# * The host function of a kernel allocates, and gives the result back: an operator may not return its own
#   `out`.
# * `on` shows the tracer a launch, and what launches is called inside of an operator only.
# * Scalars arrive in fp64, and are narrowed inside the kernel.
# * No kernel uses a module-level object that the tracer cannot copy.
#
# ## Speed, and where we lose
#
# Each operation moves at least its inputs once and its outputs once. A copy of as many bytes is the honest
# limit, and the figure below is the share of it, over the width of a row.

# %%
names = [
    f"{name}_{way}" for name in ("fused_softmax", "layer_norm", "rms_norm") for way in ("forward", "backward")
]
measured = {name: lesson.bench(name, "h200-bench-lab4.json") for name in names}

# %%
figure, axes = lesson.canvas(8, 3, columns=2, sharey=True)
for place, way in zip(axes, ("forward", "backward"), strict=True):
    mine = {name: op for name, op in measured.items() if name.endswith(way)}
    for (name, op), colour in zip(mine.items(), lesson.COLOURS, strict=False):
        for arm, line in (("ours", "o-"), ("torch", "x:")):
            points = [
                (one.size["cols"], one.arms[arm].percent_of_copy)
                for one in op.sizes
                if one.arms[arm].percent_of_copy
            ]
            label = f"{name.removesuffix(f'_{way}').removeprefix('fused_')}, {arm}"
            place.plot(*zip(*points, strict=True), line, color=colour, label=label)
    place.set_xscale("log", base=2)
    place.set_title(way)
    place.set_xlabel("columns")
axes[0].set_ylabel("of a copy of as many bytes, %")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
lesson.shown(figure, "Share of a copy, ours and PyTorch's, over the width of a row")

# %% [markdown]
# A library also says where it is not the best choice. These are the sizes at which another arm of the same
# run was faster, by more than one part in fifty:

# %%
rows = []
for name, op in measured.items():
    for one in op.sizes:
        rated = {
            arm: facts.rate
            for arm, facts in one.arms.items()
            if facts.rate and arm != "copy" and "again" not in arm
        }
        best = max(rated, key=rated.get)
        if 50 * rated.get("ours", 0) < 49 * rated[best]:
            rows.append((name, one.size["cols"], best, f"{rated['ours'] / rated[best]:.2f}"))
lesson.table(("operation", "columns", "faster", "ours, of its speed"), rows or [("none", "", "", "")])

# %% [markdown]
# ## Before somebody else uses it
#
# * A docstring that says shapes, dtypes, what may be a view, and what it refuses.
# * A test for each odd thing: no rows, one column, a row longer than any tile, views, large means, p of 0 and
#   1.
# * The same seed gives the same result on every GPU, and a weight gradient has the same bits in every run.
# * Speed in a record with the machine, versions and raw rounds, and a test that documents say what it says.
# * A limit on code size, for a file can be reviewed if it fits on two pages.

# %% [markdown]
# ## The ladder: naive, fused, tuned
#
# **Naive** is the formula as PyTorch's elementary operations. Each of them reads its inputs from memory and
# writes its result. Counted, not timed:

# %%
from torch.utils._python_dispatch import TorchDispatchMode


class Moved(TorchDispatchMode):
    """Counts operations, and the elements that they read and write."""

    calls = elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls += 1
        self.elements += sum(one.numel() for one in (*args, result) if isinstance(one, torch.Tensor))
        return result


def naive_softmax(x, *_):
    e = torch.exp(x - torch.amax(x, -1, keepdim=True))
    return e / torch.sum(e, -1, keepdim=True)


def naive_layer_norm(x, w, b):
    d = x - torch.mean(x, -1, keepdim=True)
    return d * torch.rsqrt(torch.mean(d * d, -1, keepdim=True) + 1e-5) * w + b


def naive_rms_norm(x, w, _):
    return x * torch.rsqrt(torch.mean(x * x, -1, keepdim=True) + 1e-6) * w


def naive_dropout(x, *_):
    return x * (torch.rand(x.shape) >= p) * (1 / (1 - p))


rows = []
for name, naive, vectors in (("softmax", naive_softmax, 0), ("layer_norm", naive_layer_norm, 2),
                             ("rms_norm", naive_rms_norm, 1), ("dropout", naive_dropout, 0)):  # fmt: skip
    many_rows, one_row, other_row = torch.randn(512, 1024), torch.randn(1024), torch.randn(1024)
    with Moved() as moved:
        naive(many_rows, one_row, other_row)
    least = 2 * many_rows.numel() + vectors * one_row.numel()
    rows.append((name, moved.calls, f"{moved.elements / least:.1f}"))
lesson.table(("formula", "kernels", "elements moved, in times of the least"), rows)

# %% [markdown]
# **Fused** is the library: one kernel, and the least traffic where a row is one block. `torch.compile` gets
# there as well for many formulas.
#
# **Tuned** are the variants `*_tuned.py` of the same functions, which are longer and harder to read. Read
# them after your own kernel works. Their ideas, and what each buys:
#
# * *A row stays in registers*, packed as it lay in memory (softmax, LayerNorm): a long row is not read again.
# * *Each lane has a maximum and sums of its own* (rows of several blocks): threads wait for each other once a
#   row, not once a block.
# * *Differences from a number near the mean* (LayerNorm and its gradient): mean and variance in one walk, and
#   the digits are kept.
# * *`dx` and the sums for the weights in one kernel* (gradients of norms): `dy` and `x` are read once, not
#   twice.
# * *A counter decides eight elements*, 16 bits each (dropout): half the arithmetic, but p becomes a multiple
#   of 1 / 65536.
# * *Programs that stay, tiles in the order of lab 3, the copy engine* (LayerNorm + Linear): a product that is
#   close to that of cuBLAS.
#
# What that comes to, at two widths of a row. A dash stands where the record has no such arm.

# %%
ladder = [
    (name, one) for name, op in measured.items() for one in op.sizes if one.size["cols"] in (4096, 16384)
]
ARMS = ("torch", "torch.compile", "ours", "tuned")


def cell(one, arm):
    """How fast an arm is, in percent of a copy of as many bytes."""
    share = one.arms[arm].percent_of_copy if arm in one.arms else None
    return "-" if share is None else f"{share:.0f}"


rows = [(name, one.size["cols"], *(cell(one, arm) for arm in ARMS)) for name, one in ladder]
lesson.table(("operation, % of a copy", "columns", *ARMS), rows)


def ratio(one, arm):
    """How fast an arm is, PyTorch's two steps being 1."""
    value = one.arms[arm].ratio if arm in one.arms else None
    return "-" if value is None else f"{value:.2f}"


rows = [(" x ".join(map(str, one.size.values())), *(ratio(one, arm) for arm in ARMS)) for one in fused.sizes]
lesson.table(("layer_norm_linear, PyTorch = 1", *ARMS), rows)

# %% [markdown]
# And what it costs, in lines:

# %%
TUNED = sorted((FOLDER / "variants").glob("*_tuned.py"))
rows = []
for path in TUNED:
    plain = [FOLDER / f"{name}.py" for name in FILES
             if name in (stem := path.stem.removesuffix("_tuned"), f"{stem}_backward")]  # fmt: skip
    shared = [FOLDER / "rows.py"]
    counts = [
        sum(lines_of_code(one.read_text("utf-8")) for one in files) for files in (plain + shared, [path])
    ]
    rows.append((path.name, *counts))
lesson.table(("tuned file", "plain files with rows.py", "tuned"), rows or [("none here", "-", "-")])

# %% [markdown]
# Where the plain kernel is as fast as a copy, nothing is left to tune. Where it is not, ask first which bytes
# are moved twice.
#
# ---
# Build it yourself: [lab 4, production slice](../labs/lab4_production_slice/README.md).
