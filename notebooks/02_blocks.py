# %% [markdown]
# # Thinking in blocks: vector addition
#
# In Triton one *program* works on a whole block of elements at a time. This page adds two vectors, first on
# paper and then with the kernel of lab 1, and looks at the three things every kernel decides: which elements
# a program owns, which of them exist, and how many programs there are.

# %%
import torch
import triton

from grader.site.notebooks.lesson import (
    COLOURS,
    bench,
    canvas,
    device,
    interactive,
    listing,
    say,
    shown,
    solution,
    table,
)

# %% [markdown]
# ## Which elements
#
# Every program runs the same code. It asks for its number, `tl.program_id(axis=0)`, and takes the block that
# follows from it:
#
# ```python
# offs = pid * BLOCK + tl.arange(0, BLOCK)
# ```
#
# Nothing else tells programs apart. They run in any order, many at once, and none sees what another does.
#
# ## Which of them exist
#
# Seven elements in blocks of three need three programs. The last one owns a single element, and two of its
# *lanes* point past the end. The mask `offs < n` tells the lanes apart; hollow lanes are masked.


# %%
def lanes(n, block):
    """Program, offset and mask of every lane that is launched."""
    programs = triton.cdiv(n, block)
    return [(at // block, at, at < n) for at in range(programs * block)]


def drawn(n, block):
    """A bar a lane, coloured by its program, hollow where the mask keeps the lane out."""
    figure, axes = canvas(7, 1)
    for pid, at, exists in lanes(n, block):
        colour = COLOURS[pid]
        axes.bar(at, 1, facecolor=colour if exists else "none", edgecolor=colour, linewidth=2)
        axes.text(at, 1 / 2, at, ha="center", va="center", color="white" if exists else "black")
        if at % block == 0:
            axes.text(at, 1 + 1 / 5, f"program {pid}", color=colour)
    axes.axis("off")
    masked = [at for _, at, exists in lanes(n, block) if not exists]
    shown(figure, f"{n} elements in blocks of {block}; lanes that are masked: {masked}")


drawn(7, 3)

# %% [markdown]
# That is a drawing, because `tl.arange` takes powers of two alone: `tl.arange(0, 3)` is refused. The same
# picture with numbers Triton accepts has ten elements in blocks of four, and this one can be run.

# %%
drawn(10, 4)

# %% [markdown]
# ## The kernel
#
# This is the kernel of lab 1, with its host function. Do not copy it: read it, close it, and write yours.

# %%
add = solution("lab1_elementwise_add/elementwise_add.py")
listing(add.elementwise_add_kernel)

# %% [markdown]
# Three programs with blocks of four. The result lies in a longer buffer filled with a number that no sum
# gives, so that a store outside the vector would be seen. The grader does the same with every case.

# %%
n, block, untouched = 10, 4, -1.0
x = torch.arange(n, device=device(), dtype=torch.float32)
y = 10 * x
buffer = torch.full((16,), untouched, device=device())

add.elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, buffer[:n], n, BLOCK=block)

print("the vector: ", buffer[:n].tolist())
print("after it:   ", buffer[n:].tolist())

# %% [markdown]
# The same run, step by step: choose a program and a lane, and see which addresses it reads and writes.

# %%
interactive("program_life")

# %% [markdown]
# ## Without the mask
#
# One of the answers that the grader must reject has a mask on its loads and none on its store.

# %%
wrong = solution("lab1_elementwise_add/wrong/store_without_mask.py")
listing(wrong.add)

# %%
buffer.fill_(untouched)
wrong.add[(triton.cdiv(n, block),)](x, y, buffer[:n], n, BLOCK=block)
overwritten = [at for at in range(n, len(buffer)) if buffer[at] != untouched]

print("the vector: ", buffer[:n].tolist())
print("after it:   ", buffer[n:].tolist())
print("overwritten:", overwritten)

# %% [markdown]
# The vector is right. A test that looks at the vector alone passes, and somebody else's numbers are gone:
# whatever the allocator had put there. On a GPU nothing stops such a store either, unless it leaves the
# memory of the process.
#
# A *load* needs its mask for the same reason, and a value for the lanes that it skips. Here `x + y` of those
# lanes is never stored, so any value does. Where lanes are combined, as in a sum or a maximum, the value has
# to be one that changes nothing: `other=0.0`, `other=-float("inf")`.
#
# ## How many programs
#
# The *grid* is the number of programs. It can be a tuple, or a function that Triton calls with the constants
# of the launch. The function sees `BLOCK`, so it stays right when somebody else, the autotuner of
# [notebook 5](05_autotuning.ipynb), chooses `BLOCK`.


# %%
def grid(meta):
    """Enough programs to cover n elements; `meta` holds the constants of the launch."""
    programs = triton.cdiv(n, meta["BLOCK"])
    print(f"BLOCK = {meta['BLOCK']:>2}: {programs} programs, {programs * meta['BLOCK'] - n} lanes masked")
    return (programs,)


for size in (1, 2, 4, 8, 16):
    result = torch.empty_like(x)
    add.elementwise_add_kernel[grid](x, y, result, n, BLOCK=size)
    assert torch.equal(result, x + y)

# %% [markdown]
# It is usually written on one line, `grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)`. Forgetting the
# ceiling in `cdiv` is a mistake to make once: with `n // BLOCK` the last block has no program.

# %%
print("programs that n // BLOCK gives:", n // block, " needed:", triton.cdiv(n, block))

# %% [markdown]
# An empty vector is a valid vector. Its grid has no program, and a launch of none is an error on a GPU: the
# host function of lab 1 launches nothing then.

# %%
empty = torch.empty(0, device=device())
print("programs:", triton.cdiv(0, block), " result:", add.elementwise_add(empty, empty).tolist())

# %% [markdown]
# ## Why the block is not the whole vector
#
# A program is one piece of work for one multiprocessor. With one huge block the others would stand idle; with
# a block of one element each program would be launched for a single addition. In between lies a wide range
# that does equally well. How many programs a vector gives:

# %%
sizes = (1, 1024, 65536)
table(
    ["elements", *(f"BLOCK = {size}" for size in sizes)],
    [[f"{count:,}", *(f"{triton.cdiv(count, size):,}" for size in sizes)] for count in (10, 2**20, 2**28)],
)

# %% [markdown]
# ## Past 2^31 elements
#
# `tl.program_id` is a number of 32 bits, and so is an offset computed from it. In a vector longer than its
# range the offset of the last program wraps around and points before the vector. That is why the kernel
# widens the number of the program first, with `.to(tl.int64)`.

# %%
pid = torch.tensor(2**21, dtype=torch.int32)
print("in 32 bits:", (pid * 1024).item())
print("in 64 bits:", (pid.to(torch.int64) * 1024).item())

# %% [markdown]
# ## What limits it
#
# The kernel reads two numbers and writes one for each addition. No arithmetic can hide that traffic, so the
# only question is how near it comes to a plain copy of as many bytes.

# %%
measured = bench("elementwise_add", "h200-bench-add.json")
rows = []
for one in measured.sizes:
    ours, torchs = one.arms["ours"], one.arms["torch"]
    rows.append(
        [
            f"{one.size['n']:,}",
            f"{one.bytes_moved / 1e6:,.0f} MB",
            f"{ours.median_us:,.1f} µs",
            f"{ours.rate:.2f} TB/s",
            f"{torchs.rate:.2f} TB/s",
            f"{ours.percent_of_copy:.0f} %",
        ]
    )
table(["elements", "moved", "time", "ours", "`torch.add`", "of a copy"], rows)

# %%
small, large = measured.sizes[0], measured.sizes[-1]
per_element = large.bytes_moved // large.size["n"]
say(
    f"Each element moves {per_element} bytes for one addition. From the smallest size to the largest the "
    f"work grows {large.bytes_moved / small.bytes_moved:.0f}-fold, and the time "
    f"{large.arms['ours'].median_us / small.arms['ours'].median_us:.0f}-fold: a short vector has ended "
    "before the whole GPU is at work. It beats the copy because it reads twice for each write, and reads "
    "cost less."
)

# %% [markdown]
# ## Try it
#
# * Set `block` above to eight and predict both printed lines before you run the cell.
# * What does the kernel do when the grid has one program more than needed? And with one fewer?
# * Which lanes of which program read `x[n - 1]` when `n` is a multiple of `BLOCK`?
#
# ---
# Write it yourself: [lab 1, elementwise add](../labs/lab1_elementwise_add/README.md).
