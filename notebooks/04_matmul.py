# %% [markdown]
# # Matrix product: tiles, and the order in which they are worked on
#
# A matrix product does so much arithmetic with so few numbers that it should never wait for memory. Whether
# it does is a matter of how often each number is fetched. This page counts that, reads the kernel of lab 3,
# and looks at the order in which its tiles are handed out.

# %%
import torch
import triton

from grader.site.notebooks.lesson import (
    COLOURS,
    ORANGE,
    bench,
    canvas,
    device,
    interactive,
    listing,
    say,
    shown,
    solution,
    survey,
    table,
)

# %% [markdown]
# ## What the product needs, and what a bad plan fetches
#
# $C = A B$ with $A$ of $M \times K$ and $B$ of $K \times N$ takes $2MNK$ operations. Computed element by
# element, each element of $C$ fetches one row of $A$ and one column of $B$. Computed in tiles of
# $B_M \times B_N$, a tile fetches $B_M$ rows and $B_N$ columns, and uses each number $B_N$ or $B_M$ times:
#
# $$\text{bytes fetched} = 2 \cdot \frac{M}{B_M} \cdot \frac{N}{B_N} \cdot (B_M + B_N) \cdot K$$
#
# in 16-bit numbers. The larger the tile, the less is fetched.


# %%
def fetched(side, block_m, block_n):
    """Bytes that the tiles of a square product load, in numbers of 16 bits."""
    tiles = triton.cdiv(side, block_m) * triton.cdiv(side, block_n)
    return 2 * tiles * (block_m + block_n) * side


h200 = survey()
side = 8192
operations = 2 * side**3
rate = next(one.flops_per_s for one in h200.measured.matmul if one.dtype == "bf16")
busy_ms = 1e3 * operations / rate

table(
    ["tile", "fetched", "FLOP per byte", "to fetch it from DRAM", "from L2"],
    [
        [
            f"{m}, {n}",
            f"{fetched(side, m, n) / 1e9:,.1f} GB",
            f"{operations / fetched(side, m, n):,.1f}",
            f"{1e3 * fetched(side, m, n) / h200.measured.dram_read:,.2f} ms",
            f"{1e3 * fetched(side, m, n) / h200.measured.l2_read:,.2f} ms",
        ]
        for m, n in ((1, 1), (16, 16), (64, 64), (128, 128), (128, 256), (256, 256))
    ],
)
say(f"The arithmetic alone, at the rate that the survey measured for bf16, takes {busy_ms:.2f} ms.")

# %% [markdown]
# Read the table from the last column to the left. A tile is large enough when what it fetches arrives sooner
# than the tensor cores are done. From DRAM that takes the largest tiles; from L2 smaller ones would do. So
# two things decide: the size of the tile, and how much of what it fetches is still in L2.
#
# A tile has an upper limit, too. Its sums stay in registers, in fp32, for the whole loop over $K$.

# %%
registers = h200.attributes.registers_per_multiprocessor
table(
    ["tile", "sums", "share of the registers of a multiprocessor"],
    [
        [f"{m}, {n}", f"{m * n:,}", f"{m * n / registers:.0%}"]
        for m, n in ((64, 64), (128, 128), (128, 256), (256, 256))
    ],
)

# %% [markdown]
# ## Pointers to a tile
#
# A tile of $A$ is two-dimensional, and so is the block of its pointers. `[:, None]` makes a column of the row
# numbers, `[None, :]` a row of the column numbers, and their sum is a table. The strides say how far apart
# neighbours lie, so a transposed matrix needs no other code.

# %%
offs_m, offs_k = torch.arange(4), torch.arange(4)
for name, stride_m, stride_k in (("rows contiguous", 100, 1), ("transposed", 1, 100)):
    print(f"{name}: offsets of the first tile")
    print(offs_m[:, None] * stride_m + offs_k[None, :] * stride_k)

# %% [markdown]
# ## The kernel

# %%
lab3 = solution("lab3_autotuned_matmul/autotuned_matmul.py")
listing(lab3.matmul_kernel)

# %% [markdown]
# * The loop walks along $K$. After each step both pointer blocks move by one tile.
# * The mask along $K$ is compared with what is *left*, `K - k`. Lanes past it give `0.0`, which adds nothing
#   to a product; without the mask the last step would multiply whatever lies behind the row.
# * `acc` is fp32 whatever the matrices are, and is rounded once, at the store.
# * `input_precision="ieee"` matters for fp32 alone: without it a GPU rounds fp32 inputs to TF32. The
#   interpreter does not, so only a GPU shows the difference.
#
# ## It runs on a size that no tile divides

# %%
torch.manual_seed(5)
M, N, K = 70, 90, 50
a, b = (torch.randn(shape, device=device(), dtype=torch.float16) for shape in ((M, K), (K, N)))
c = lab3.matmul(a, b)
expected = a.double() @ b.double()
error = (c - expected).abs().max().item()
step = torch.finfo(torch.float16).eps * expected.abs().max().item()
say(f"Largest error {error:.4f}; the spacing of fp16 at the largest result is {step:.4f}.")
assert error <= step

# %% [markdown]
# ## From the number of a program to its tile
#
# The programs are numbered from zero, and start about in that order. Which tile number 17 stands for is our
# choice. The plain choice is row by row. The kernel of lab 3 walks through groups of `GROUP_M` rows of tiles,
# column by column.

# %%
listing(lab3.place)

# %% [markdown]
# The same order in Python, to draw it with. It says where the programs go, one after the other; a kernel has
# only the number of its program, and takes the place from that.


# %%
def order(rows, columns, group_m):
    """Row and column, in tiles, of every tile in turn: group by group, in it column by column."""
    groups = [range(first, min(first + group_m, rows)) for first in range(0, rows, group_m)]
    return [(row, column) for group in groups for column in range(columns) for row in group]


def reached(side, group_m, programs, block=16):
    """Tiles that the kernel itself writes when only the first programs are launched."""
    a = torch.ones(side, side, device=device(), dtype=torch.float16)
    c = torch.zeros_like(a)
    kernel = lab3.matmul_kernel.fn
    strides = (*a.stride(), *a.stride(), *c.stride())
    tile = {"BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": block, "GROUP_M": group_m}
    kernel[(programs,)](a, a, c, a, side, side, side, *strides, BIAS_RELU=False, **tile)
    written = c.reshape(side // block, block, side // block, block).amax(dim=(1, 3)).nonzero()
    return {tuple(one) for one in written.tolist()}


for programs in (1, 3, 6, 9, 14):
    assert reached(64, 3, programs) == set(order(4, 4, 3)[:programs])
print("the kernel and the Python above agree")

# %% [markdown]
# ## What the programs in flight share
#
# One multiprocessor works on one large tile at a time, so as many tiles are in flight as there are
# multiprocessors. Tiles of one row share rows of $A$, tiles of one column share columns of $B$. Coloured are
# the tiles of the first wave.

# %%
block_m, block_n = 128, 256
rows, columns = side // block_m, side // block_n
wave = h200.attributes.multiprocessors


def first_wave(group_m):
    """Tiles that are at work first."""
    return order(rows, columns, group_m)[:wave]


figure, both = canvas(8, 2, columns=2, sharey=True)
for axes, group_m in zip(both, (1, 8), strict=True):
    grid = torch.zeros(rows, columns)
    for at, (row, column) in enumerate(first_wave(group_m)):
        grid[row, column] = 1 + at
    axes.imshow(grid.clamp(max=1), cmap="Blues", aspect="auto", vmax=2)
    axes.set_title(f"GROUP_M = {group_m}")
    axes.set_xlabel("column of tiles")
    axes.set_ylim(12, -1)
both[0].set_ylabel("row of tiles")
shown(figure, "tiles of the first wave: whole rows with GROUP_M = 1, a block of eight rows with GROUP_M = 8")

# %% [markdown]
# What the wave needs of $A$ and $B$ is one strip for each row and each column it touches.


# %%
def needed(group_m):
    """Bytes of a and b that the first wave touches, in numbers of 16 bits."""
    tiles = first_wave(group_m)
    strips = len({row for row, _ in tiles}) * block_m + len({column for _, column in tiles}) * block_n
    return 2 * strips * side


groups = (1, 2, 4, 8, 16, 32, 64)
figure, axes = canvas(6, 3)
megabytes = [needed(group_m) / 1e6 for group_m in groups]
axes.bar([str(group_m) for group_m in groups], megabytes, color=COLOURS[0])
axes.axhline(h200.attributes.l2_bytes / 1e6, color=ORANGE, linestyle="--", label="size of the L2")
axes.set_xlabel("GROUP_M")
axes.set_ylabel("MB that one wave touches")
axes.legend(loc="upper center")
shown(figure, f"MB by GROUP_M: {dict(zip(groups, (round(one) for one in megabytes), strict=True))}")

# %% [markdown]
# Wave by wave, in both orders, with the strips that a cache holds:

# %%
interactive("tile_order")

# %% [markdown]
# The wave is cheapest when it is about square in elements, not in tiles: its tiles are wider than high. The
# wave does not touch all of it at once, either: it walks along $K$, and at any time only the current steps
# have to be near.
#
# ## Measured
#
# The ladder of lab 3 has one change a step. The first step takes tiles row by row, the second in groups.

# %%
steps = [
    "ladder_1_plain_tiles",
    "ladder_2_grouped",
    "ladder_3_host_descriptors",
    "ladder_4_persistent",
    "ladder_5_gluon_warp_specialised",
    "ladder_6_gluon_tile_by_shape",
]
files = [f"lab3_autotuned_matmul/variants/{step}.py" for step in steps]
measured = bench("matmul", "h200-bench-matmul.json", files)
large = [one for one in measured.sizes if one.size["n"] >= 2048]
arms = [f"{step} NN" for step in steps] + ["ours NN", "torch.mm NN"]


def cell(one, arm):
    """Rate of an arm, if it has one."""
    found = one.arms.get(arm)
    return f"{found.rate:.0f} TFLOP/s" if found and found.rate else "none"


table(
    ["arm, by the side of the matrices", *(str(one.size["n"]) for one in large)],
    [[arm.removesuffix(" NN"), *(cell(one, arm) for one in large)] for arm in arms],
)

# %%
one = large[-1]
plain, grouped = one.arms["ladder_1_plain_tiles NN"], one.arms["ladder_2_grouped NN"]
say(
    f"Grouping changes the rate at the largest size by {100 * (grouped.rate / plain.rate - 1):+.1f} %. The "
    "model counts bytes that L2 has to bring, and a kernel gains from fewer of them only while it waits for "
    "them. The record is of a GPU with a large L2, where the step after this one is worth more. Where L2 is "
    "small it may be the other way round. Measure, then believe."
)

# %% [markdown]
# Steps three to six change how tiles travel: descriptors in place of pointers, programs that stay and take
# the next tile, and a warp that does nothing but load. Lab 3 asks for the first two steps; the bonus
# explains the third and the fourth.
#
# ## Try it
#
# * For which `GROUP_M` is a wave of square tiles cheapest? Change `block_n` and look at the bars.
# * What does the last group look like when `GROUP_M` does not divide the rows? Call `order` with five rows.
# * Why does the formula for bytes have no $B_K$ in it, and what does `BLOCK_K` decide?
#
# ---
# Write it yourself: [lab 3, autotuned matmul](../labs/lab3_autotuned_matmul/README.md).
