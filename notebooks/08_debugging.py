# %% [markdown]
# # Debugging: see what a kernel does, then make its mistake visible
#
# A wrong kernel seldom crashes. It gives numbers, most of them right. This page looks into kernels while they
# run, then at the mistakes that plain comparison lets through, and at how the grader makes them show.
#
# Do it in this order:
#
# 1. Is it wrong at all? Compare with PyTorch, at a size that is small and odd.
# 2. Run it in the interpreter, at the smallest size that is still wrong, and look at offsets and masks first.
# 3. Only then think about the arithmetic.

# %% [markdown]
# ## Look inside: `tl.device_print`
#
# `tl.device_print("name", value)` prints a block from inside a kernel. Below, lab 1's kernel is loaded with
# one line more, put behind the line that computes the mask: ten elements in blocks of four.

# %%
from grader.site.notebooks import lesson


def with_a_look_inside(line):
    import importlib.util
    import sys
    import tempfile
    from pathlib import Path

    import torch

    kernel = Path("solutions/lab1_elementwise_add/elementwise_add.py").read_text("utf-8")
    behind = "    mask = offs < n\n"
    assert behind in kernel
    file = Path(tempfile.mkdtemp(), "looked_into.py")
    file.write_text(kernel.replace(behind, f"{behind}    {line}\n"), "utf-8")
    specification = importlib.util.spec_from_file_location("looked_into", file)
    module = importlib.util.module_from_spec(specification)

    def seen():
        there = sys._getframe(1).f_locals
        print(f"stopped, offs = {there['offs'].handle.data}, mask = {there['mask'].handle.data}")

    sys.breakpointhook = seen  # stands for the prompt of pdb
    specification.loader.exec_module(module)
    x, out = torch.arange(10.0), torch.zeros(10)
    module.elementwise_add_kernel[(3,)](x, x, out, 10, BLOCK=4)


lesson.apart(with_a_look_inside, 'tl.device_print("offs", offs)', TRITON_INTERPRET="1")

# %% [markdown]
# Three programs, and the last one points past the end. On a GPU every thread prints a line of its own, with
# its program and its lane, in any order and on the terminal, not in a notebook. So keep the block small
# there, and print from one program: `if tl.program_id(0) == 2:` in front of it.
#
# ## Look inside: plain Python
#
# The interpreter runs a kernel as Python, with NumPy behind each operation. So `print` works, too.

# %%
lesson.apart(with_a_look_inside, 'print("mask", mask)', TRITON_INTERPRET="1")

# %% [markdown]
# And so does `breakpoint()`: it stops in the program, with `offs`, `mask` and all the others at hand. A page
# cannot answer a prompt, so here a function takes the place of pdb and shows two variables at each stop. With
# `TRITON_INTERPRET=1 python your_test.py` the real prompt comes.

# %%
lesson.apart(with_a_look_inside, "breakpoint()", TRITON_INTERPRET="1")

# %% [markdown]
# Remove such lines before you hand in: `breakpoint()` is refused there, and printing costs time.
#
# What the interpreter does **not** show, and only a GPU does:
#
# | | in the interpreter |
# |---|---|
# | two programs that write one element | programs run one after the other, so the last one wins, always |
# | `tl.dot` on fp32 as TF32 | exact |
# | bf16 | wrong in silence: the grader refuses it there, take fp32 or fp16 |
# | `tl.device_assert` | never fires |
# | a load far outside | a crash without a word, or nothing |

# %% [markdown]
# ## Masks: the mistake that passes
#
# `store_without_mask.py` is one of the wrong answers that the grader is tested with: its loads have a mask,
# its store has none. Here is how most people would test it.

# %%
import torch

WRONG = lesson.ROOT / "solutions" / "lab1_elementwise_add" / "wrong"


def wrong(name):
    """One of the wrong answers as a module."""
    return lesson.solution(f"lab1_elementwise_add/wrong/{name}.py")


unmasked = wrong("store_without_mask")
room = torch.zeros(2048, device=lesson.device())  # what lies behind is somebody else's
x, y, out = (room[start : start + 127] for start in (0, 256, 512))
x.copy_(torch.randn(127))
y.copy_(torch.randn(127))
unmasked.elementwise_add(x, y, out=out)
print("allclose:", torch.allclose(out, x + y))

# %% [markdown]
# Right, it seems. The block had 512 lanes, though, and all of them stored. Whoever owned the memory behind
# `out` has other numbers now. To see it, the grader lays every tensor between **guard bands**, and looks at
# them afterwards:
#
# * around an **input** lies NaN: a lane that reads too far brings NaN into the result;
# * around an **output** lies a small finite number, drawn at random: a lane that writes too far changes it.
#   It is not NaN, since a NaN that somebody writes there would not be seen;
# * in the output itself lies **poison**, a NaN with a random payload: an element that was never written still
#   has it.

# %%
from grader.judge.inputs import GUARD, Placer, Rng, band_input, first_change_outside, poison_output, untouched
from grader.worker.shared_memory import Arena


def between_bands(function, n):
    """Call with lent tensors as the grader does; what the bands say afterwards."""
    placer = Placer()
    buffers = {name: placer.place(name, (n,), "fp32") for name in ("x", "y", "out")}
    arena = Arena.create(lesson.device(), placer.position)
    for name in ("x", "y"):
        band_input(arena, buffers[name])
        arena.view(buffers[name].tensor).copy_(torch.randn(n))
    before = poison_output(arena, buffers["out"], Rng(1, "bands", lesson.device()))
    x, y, out = (arena.view(buffer.tensor) for buffer in buffers.values())
    function(x, y, out=out)
    at = first_change_outside(arena, buffers["out"], before)
    left = int(untouched(arena, buffers["out"], before).sum())
    right = torch.equal(out, x + y)
    outside = "nothing was written outside" if at is None else f"a write at element {at} of {n}"
    return f"{'right' if right else 'wrong'}, {left} never written, {outside}"


print(f"bands of {GUARD // 1024} KB on each side")
good = lesson.solution("lab1_elementwise_add/elementwise_add.py")
print(f"{'the solution':<36}", between_bands(good.elementwise_add, 4099))
for name in (
    "store_without_mask",
    "mask_lets_one_lane_too_many_through",
    "grid_one_short",
    "start_counted_twice",
):
    print(f"{name:<36}", between_bands(wrong(name).elementwise_add, 4099))

# %% [markdown]
# Four mistakes, and each leaves another trace. "Wrong" alone would tell them apart from nothing.
#
# ## What the report makes of it
#
# The whole grader does this and more: two inputs, an fp64 reference, a tolerance that PyTorch's own error
# sets, and a diagnosis that goes from the pattern of wrong elements to a cause and to a hint of the lab's
# page. Here it judges single cases of wrong answers, in processes like those of `make grade`.

# %%
from grader.site.notebooks.graded import cases, judged

for name in ("store_without_mask", "grid_one_short", "sum_stored_into_x", "sum_goes_to_a_new_tensor"):
    print(f"{name}\n{judged(1, 'elementwise_add', 'n=65537,fp32', f'wrong/{name}.py')}\n")

# %% [markdown]
# The first line names the first wrong element, the second says where all of them lie, the third the likely
# cause. The second line is worth most. "The last columns of every row" is a mask or a grid; "rows after the
# first" is a stride; "every element, by one factor" is arithmetic.

# %%
for name, case in (
    ("one_block_and_no_loop", "rows=3,cols=16385,fp32"),
    ("running_sum_not_rescaled", "rows=7,cols=20011,values=ascending,fp32"),
    ("rows_taken_to_touch", "rows=29,cols=1001,x padded 24,out padded 7,fp32"),
    ("masked_lanes_load_zero", "rows=29,cols=1001,fp32"),
):
    print(f"{name}\n{judged(2, 'softmax_forward', case, f'wrong/{name}.py')}\n")

# %% [markdown]
# ## Edge cases: the sizes to try
#
# Odd sizes find masks, sizes that are no square find strides, sizes larger than a block find loops. These are
# the sizes that the labs use; try the same ones before you run `make grade`.

# %%
for lab, exercise in ((1, "elementwise_add"), (2, "softmax_forward"), (3, "matmul")):
    print(f"lab {lab}:", "; ".join(cases(lab, exercise)))

# %% [markdown]
# **Nothing at all.** With n = 0 there is nothing to launch, and whatever is computed from n may be 0 as well:
# a block, a grid, a mean. The solution asks first; this wrong answer divides:

# %%
print(good.elementwise_add(torch.empty(0), torch.empty(0)).shape)
print(judged(1, "elementwise_add", "n=0,fp32", "wrong/empty_vector_divides_by_zero.py"))

# %% [markdown]
# **One element.** One lane of the block exists. A reduction over it must meet the identity of its operation
# in all the others: 0 for a sum, minus infinity for a maximum.

# %%
softmax = lesson.solution("lab2_online_softmax/online_softmax.py")
one = torch.randn(3, 1, device=lesson.device())
print(softmax.softmax_forward(one).flatten())

# %% [markdown]
# **Far away.** `tl.program_id` is an int32, and so is a stride that fits. Their product is an int32 as well,
# and past 2^31 elements it wraps around to somewhere before the tensor. The numbers below are what a kernel
# computes for the first element of each row of a large matrix:

# %%
row = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
stride = 2**30
for number, narrow, wide in zip(row, row * stride, row.to(torch.int64) * stride, strict=True):
    print(f"row {number}: int32 {narrow.item():>14,}   int64 {wide.item():>14,}")

# %% [markdown]
# A test on small matrices never finds this. So widen first, then multiply. Every kernel of the solutions
# does:

# %%
for file in sorted((lesson.ROOT / "solutions").glob("lab[12]*/*.py")):
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        if "program_id" in line and "int64" in line:
            print(f"{file.parent.name}/{file.name}:{number}: {line.strip()}")

# %% [markdown]
# **Rows with gaps.** A view of a larger matrix has a row stride that is not its width. Take strides as
# arguments, one for each tensor.

# %%
wide = torch.randn(4, 300, device=lesson.device())
view = wide[:, :127]
print(
    "strides",
    view.stride(),
    "right:",
    torch.allclose(softmax.softmax_forward(view), torch.softmax(view, -1), atol=1e-6),
)

# %% [markdown]
# ## Your turn
#
# Read a kernel, say what the report will name, then open the answer. The verdict in it was given when this
# page ran.


# %%
def riddle(name):
    """A wrong answer of lab 1 from its kernel on, and the grader's verdict behind a fold."""
    text = (WRONG / f"{name}.py").read_text("utf-8")
    lesson.say(f"```python\n{text[text.index(f'{chr(10)}@') :].strip()}\n```")
    said = judged(1, "elementwise_add", "n=65537,fp32", f"wrong/{name}.py")
    lesson.say(f"<details><summary>The verdict</summary>\n\n```\n{said.strip()}\n```\n\n</details>")


riddle("start_counted_twice")

# %%
riddle("y_comes_from_the_first_block")

# %%
riddle("where_has_its_arguments_swapped")


# %% [markdown]
# ---
# Make your own mistakes, and let the grader find them: [lab 1, elementwise
# add](../labs/lab1_elementwise_add/README.md) and [lab 2, online
# softmax](../labs/lab2_online_softmax/README.md).
