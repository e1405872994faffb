# %% [markdown]
# # Thinking in blocks: vector addition
#
# In Triton one *program* works on a whole block of elements at a time. This page adds two vectors, first on
# paper and then with the kernel of lab 1, and looks at the three things every kernel decides: which elements
# a program owns, which of them exist, and how many programs there are.

# %% [markdown]
# Each program asks for its number, `tl.program_id(axis=0)`, and takes the block that follows from it:
#
# `offs = pid * BLOCK + tl.arange(0, BLOCK)`
#
# Nothing else tells programs apart. They run in any order, many at once, and none sees what another does.
#
# ## Seven elements in three programs
#
# With blocks of three, two programs have full blocks. The last one owns a single element, and two of its
# lanes point past the end of the vector. A mask, `offs < n`, tells the lanes apart.

# %%
from grader.notebooks.lesson import COLOURS, canvas, shown


def lanes(n, block):
    """Program, offset and mask of every lane that is launched."""
    programs = -(-n // block)
    return [(at // block, at, at < n) for at in range(programs * block)]


def drawn(n, block):
    """A bar a lane, coloured by its program, hollow where the mask keeps the lane out."""
    figure, axes = canvas(7, 1.3)
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
# ---
# Write it yourself: [lab 1, elementwise add](../labs/lab1_elementwise_add/README.md).
