# %% [markdown]
# # A production slice: kernels as a library
#
# A kernel that works in a test is not yet something that others can build on. They want a function with a
# name they know, a gradient, any shape and dtype, no surprise under `torch.compile`, and less memory than
# before. This page takes the small library of lab 4 through all of it: softmax, LayerNorm, RMSNorm, dropout
# without a stored mask, and LayerNorm with the Linear layer behind it.

# %%
from pathlib import Path

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
# ## LayerNorm where it is hard: a large mean
#
# The variance is the mean of squares minus the square of the mean. Where the mean is large both are large and
# nearly equal, and the digits in which they differ were rounded away. The library subtracts a number near the
# mean first.

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
# ## Dropout that remembers a seed, not a mask
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
# 16 random bits decide an element, so p is a multiple of 1 / 65536. The price of eight elements for each call
# of the generator:

# %%
for asked in (0.1, 0.3, 0.5):
    threshold = int(asked * 65536 + 0.5)
    print(f"p = {asked}: threshold {threshold}, in truth {threshold / 65536:.6f}")

# %% [markdown]
# A seed must differ from call to call, and from layer to layer, or the same neurons drop out together. That
# is the caller's task here, as it is with JAX; PyTorch hides it in a global generator.
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
# Dropout keeps nothing, softmax its own result alone. LayerNorm + Linear keeps two numbers a row and the
# scaled weight, where PyTorch keeps the whole normalised matrix: that one grows with the batch, the weight
# does not.
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
# `fullgraph=True` makes a graph break an error, so use it in a test. What the library does for it: the host
# function of a kernel allocates, and gives the result back, since an operator may not return its own `out`;
# scalars arrive in fp64 and are narrowed inside the kernel; and no module-level object is used in a kernel
# that the tracer cannot copy.
#
# ## LayerNorm + Linear: when fusion is algebra
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
fused = lesson.bench("layer_norm_linear_forward", "h200-bench-linear.json")
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
# ## Speed, and where we lose
#
# Each operation moves at least its inputs once and its outputs once. A copy of as many bytes is the honest
# limit, and the figure below is the share of it, over the width of a row.

# %%
forward = {op: lesson.bench(op, file) for op, file in (
    ("fused_softmax_forward", "h200-bench-forward.json"), ("layer_norm_forward", "h200-bench-forward.json"),
    ("rms_norm_forward", "h200-bench-forward.json"), ("fused_softmax_backward", "h200-bench-rows.json"),
    ("layer_norm_backward", "h200-bench-norms.json"),
    ("rms_norm_backward", "h200-bench-norms.json"))}  # fmt: skip

# %%
figure, axes = lesson.canvas(8, 3, columns=2, sharey=True)
for place, way in zip(axes, ("forward", "backward"), strict=True):
    mine = {name: op for name, op in forward.items() if name.endswith(way)}
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
for name, op in forward.items():
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
# * A limit on code size: a file that fits on two pages can be reviewed.

# %%
for file in sorted(Path(library.__path__[0]).glob("[!_]*.py")):
    lines = [
        line
        for line in file.read_text("utf-8").splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    print(f"{file.name:<24}{len(lines):>4} lines of code")

# %% [markdown]
# ---
# Build it yourself: [lab 4, production slice](../labs/lab4_production_slice/README.md).
