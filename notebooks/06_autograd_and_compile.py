# %% [markdown]
# # Autograd and torch.compile
#
# A kernel is of use in a model when gradients flow through it and the compiler does not stumble over it. Both
# are a few lines around the kernel. This page reads them in labs 2 and 4, checks every gradient against fp64,
# and asks PyTorch's tracer what it sees.

# %%
import torch

from grader.site.notebooks.lesson import apart, bench, device, excerpt, listing, say, solution, table

online = solution("lab2_online_softmax/online_softmax.py")
softmax = solution("lab4_production_slice/softmax.py")
layer_norm = solution("lab4_production_slice/layer_norm_backward.py")
rms_norm = solution("lab4_production_slice/rms_norm_backward.py")
linear = solution("lab4_production_slice/layer_norm_linear_backward.py")

# %% [markdown]
# ## An autograd function
#
# PyTorch cannot differentiate what happens inside a kernel. It has to be told: `forward` computes and keeps
# what the gradient will need, `backward` gets the gradient of the result and returns one gradient for each
# input of `forward`.

# %%
listing(online.OnlineSoftmax)

# %% [markdown]
# * Softmax keeps its *result*, not its input: the gradient needs nothing else. Normalisation keeps its input.
#   What is kept stays in memory until the backward pass, for every layer of a model.
# * `ctx.save_for_backward` is more than a place to put a tensor. It notices when the tensor is changed in
#   place before the backward pass, and breaks the cycle that an attribute would make.
# * `dy.contiguous()` is there because a gradient need not lie in memory as the result did.

# %%
x = torch.randn(3, 4, requires_grad=True)
seen = []
y = x * 1
y.register_hook(lambda dy: seen.append(dy.stride()))
y.sum().backward()
print("strides of the gradient that a sum sends back:", seen[0])

# %% [markdown]
# Stride zero: one number in memory stands for all. A kernel that takes neighbours to be one element apart
# would read past it.
#
# ## Gradients against fp64
#
# `torch.autograd.gradcheck` perturbs each input a little and compares differences. It wants fp64 all the way,
# and a kernel that adds up in fp32 cannot give that.

# %%
try:
    torch.autograd.gradcheck(online.softmax, torch.randn(2, 5, device=device()).double().requires_grad_())
    print("gradcheck passes")
except RuntimeError as error:
    print("gradcheck:", str(error).splitlines()[0])

# %% [markdown]
# The gradient is right, and the test is the wrong one: its differences are smaller than the roundings. So the
# course, and the grader, compare with autograd of the plain formula in fp64, and judge the error by the
# spacing of the numbers that were returned.


# %%
def gradients(function, *inputs):
    """The result, and the gradient for each input, of the same pretended loss every time."""
    leaves = [one.detach().clone().requires_grad_() for one in inputs]
    y = function(*leaves)
    torch.manual_seed(7)
    y.backward(torch.randn(y.shape).to(y))
    return [y.detach(), *(leaf.grad for leaf in leaves)]


def compared(name, ours, formula, *inputs):
    """One row a gradient: its largest error, in spacings of fp32 at its largest value."""
    exact = gradients(formula, *(one.double() for one in inputs))
    names = ["y", *(f"d{input_name}" for input_name in ("x", "weight", "bias", "linear", "shift"))]
    for what, mine, right in zip(names, gradients(ours, *inputs), exact, strict=False):
        spacing = torch.finfo(torch.float32).eps * right.abs().max().item()
        yield name, what, (mine - right).abs().max().item() / spacing


torch.manual_seed(11)
x, weight, bias = torch.randn(6, 200) + 1, torch.randn(200), torch.randn(200)
matrix, shift = torch.randn(48, 200), torch.randn(48)
x, weight, bias, matrix, shift = (one.to(device()) for one in (x, weight, bias, matrix, shift))
F = torch.nn.functional
cases = [
    ("softmax of lab 2", online.softmax, lambda x: torch.softmax(x, -1), x),
    ("softmax of lab 4", softmax.fused_softmax, lambda x: torch.softmax(x, -1), x),
    ("layer norm", layer_norm.layer_norm, lambda x, w, b: F.layer_norm(x, (200,), w, b), x, weight, bias),
    ("RMS norm", rms_norm.rms_norm, lambda x, w: F.rms_norm(x, (200,), w, 1e-6), x, weight),
    (
        "layer norm and linear",
        linear.layer_norm_linear,
        lambda x, w, b, m, s: F.linear(F.layer_norm(x, (200,), w, b), m, s),
        x,
        weight,
        bias,
        matrix,
        shift,
    ),
]
rows = [row for case in cases for row in compared(*case)]
table(
    ["operator", "of", "error in spacings of fp32"], [[name, what, f"{off:.1f}"] for name, what, off in rows]
)

# %% [markdown]
# A wrong gradient is not a little off. This answer leaves out the sum over the row.

# %%
wrong = solution("lab2_online_softmax/wrong/gradient_without_the_sum.py")
y, dy = torch.softmax(x, -1), torch.randn_like(x)
right = online.softmax_backward(dy, y)
spacing = torch.finfo(torch.float32).eps * right.abs().max().item()
off = (wrong.softmax_backward(dy, y) - right).abs().max().item()
say(f"Its gradient is off by {off / spacing:,.0f} spacings of fp32.")

# %% [markdown]
# The choice of `dy` decides what a check can see. With a `dy` of ones, which is what `y.sum().backward()`
# sends back, the gradient of a softmax is zero, because the shares of a row add up to one whatever happens.
# A backward pass that returns zeros would pass. Test with a random `dy`.

# %%
ones = torch.ones(2, 5, device=device())
print(
    "gradient for a dy of ones:",
    online.softmax_backward(ones, torch.softmax(x[:2, :5], -1)).abs().max().item(),
)

# %% [markdown]
# ## Under torch.compile
#
# `torch.compile` traces a function into a graph. Where it meets something it cannot look into, it ends the
# graph there, calls that piece as usual, and begins another: a *graph break*. Nothing is fused across it, and
# each piece pays for its own start.
#
# Both passes of lab 4 are registered as operators. `triton_op` says that the operator consists of
# Triton kernels, which the compiler may see: the call is one node while gradients are worked out, and the
# launch inside can be compiled with what stands around it.

# %%
excerpt(softmax, "forward_op", "backward_op", "FusedSoftmax")

# %% [markdown]
# The tracer needs no GPU, and no numbers either: tensors that have a shape and no contents will do. It does
# need kernels that are compiled, not interpreted, so it runs in a process of its own.


# %%
def explained():
    """What the tracer makes of a small model around each operator."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from grader.site.notebooks.lesson import solution

    def operators(graph):
        modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
        names = (str(node.target) for module in modules for node in module.graph.nodes)
        return sorted({name for name in names if name.startswith("course.")})

    with FakeTensorMode():
        x, w, b, matrix, shift = (
            torch.randn(shape, requires_grad=True) for shape in ((4, 64), (64,), (64,), (32, 64), (32,))
        )
        cases = {
            "softmax.fused_softmax": (),
            "layer_norm_backward.layer_norm": (w, b),
            "rms_norm_backward.rms_norm": (w,),
            "layer_norm_linear_backward.layer_norm_linear": (w, b, matrix, shift),
        }
        for name, more in cases.items():
            file, _, called = name.partition(".")
            function = getattr(solution(f"lab4_production_slice/{file}.py"), called)

            def model(x, *more, function=function):
                return function(2 * x, *more) + 1

            torch._dynamo.reset()
            found = torch._dynamo.explain(model)(x, *more)
            print(f"{called}: {found.graph_count} graph, {found.graph_break_count} breaks")
            for graph in found.graphs:
                print("   ", ", ".join(operators(graph)))


apart(explained)

# %% [markdown]
# One graph each, with the operators of both passes in it. For comparison, a model that prints:


# %%
def broken():
    """The same with a print between the operators."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from grader.site.notebooks.lesson import solution

    softmax = solution("lab4_production_slice/softmax.py").fused_softmax

    def model(x):
        y = softmax(2 * x)
        print("    (this line is printed by the model)")
        return y + 1

    with FakeTensorMode():
        found = torch._dynamo.explain(model)(torch.randn(4, 64, requires_grad=True))
    print(f"{found.graph_count} graphs, {found.graph_break_count} break")


apart(broken)

# %% [markdown]
# `torch.compile(model, fullgraph=True)` turns a break into an error. Put it into a test: a break costs speed
# and says nothing.
#
# ## What the operator may not do
#
# An operator in a graph has to be functional: a new result, inputs unchanged, never a result that is one of
# its inputs. That is why `out=` stays outside it: `fused_softmax_forward` takes it, the operator does not.
# `on` gives the kernel to launch: while the compiler traces, `wrap_triton` shows it the launch.

# %%
listing(softmax.fused_softmax_forward)

# %% [markdown]
# ## And why write kernels at all
#
# The compiler writes Triton, too. For chains of elementwise operators there is rarely a reason to do it by
# hand. For rows it depends on the operator and on their length: the table has the rate of a compiled plain
# formula as a share of the rate of the hand-written kernel.

# %%
ops = {"softmax": "fused_softmax_forward", "layer norm": "layer_norm_forward", "RMS norm": "rms_norm_forward"}
shares = {}
for name, op in ops.items():
    for one in bench(op, "h200-bench-lab4.json").sizes:
        compiled, ours = one.arms["torch.compile"], one.arms["ours"]
        shares[one.size["cols"], name] = f"{ours.median_us / compiled.median_us:.0%}"
widths = sorted({columns for columns, _ in shares})
table(["columns", *ops], [[width, *(shares.get((width, name), "") for name in ops)] for width in widths])

# %% [markdown]
# ## Try it
#
# * Save `x` in place of `y` in your `OnlineSoftmax`. Which check finds it, and what does it cost in memory?
# * Return `None` from `backward` for an input that needs a gradient, and read the error.
# * Put `y.sum().item()` into `model` above, in place of the print.
#
# ---
# Write it yourself: [lab 4, production slice](../labs/lab4_production_slice/README.md).
