# %% [markdown]
# # Autotuning: how a kernel gets its constants
#
# The size of a tile, the number of warps and the depth of the pipeline are constants of a compiled kernel.
# Which are best depends on the GPU and on the sizes, and nobody guesses them well. The autotuner tries a list
# of them and keeps the fastest. This page reads such a list, a trace of a real tuning, and the one word that
# decides when it happens again: `key`.

# %%
import contextlib
import io
import re

import torch
import triton

from grader.site.notebooks.lesson import (
    BLUE,
    ORANGE,
    canvas,
    device,
    excerpt,
    interactive,
    lesson_record,
    listing,
    say,
    shown,
    solution,
    survey,
    table,
)

lab3 = solution("lab3_autotuned_matmul/autotuned_matmul.py")
h200 = survey().attributes

# %% [markdown]
# ## The list
#
# ```python
# @triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
# @triton.jit
# def matmul_kernel(...):
# ```
#
# Each entry is a `triton.Config`: constants that the kernel takes, and options for the compiler.

# %%
excerpt(lab3, "CONFIGS")

# %% [markdown]
# What an entry asks of a multiprocessor can be counted.
#
# * **Shared memory** holds the tiles of $A$ and $B$ that are on their way: one pair for each stage.
# * **Registers** hold the sums: `BLOCK_M * BLOCK_N` numbers of 32 bits, spread over the threads of the
#   program. A thread can have 255 of them, and needs some for everything else.


# %%
def asked(config):
    """What one config takes: bytes of shared memory for 16-bit tiles, and sums a thread keeps."""
    m, n, k = (int(config[f"BLOCK_{axis}"]) for axis in "MNK")
    stages, warps = int(config["num_stages"]), int(config["num_warps"])
    return 2 * stages * (m + n) * k, m * n // (h200.warp_size * warps)


def read(config):
    """A config, or how it is printed, as a dict."""
    return dict(re.findall(r"(\w+): (\w+)", str(config)))


def tile(config):
    """How this page writes a config."""
    sides = ", ".join(config[f"BLOCK_{axis}"] for axis in "MNK")
    return f"{sides}; {config['num_stages']} stages, {config['num_warps']} warps"


limit = h200.shared_bytes_per_block
table(
    ["tile", "shared memory", "of what a program may have", "sums a thread"],
    [
        [tile(config), f"{shared / 1024:.0f} KB", f"{shared / limit:.0%}", sums]
        for config in map(read, lab3.CONFIGS)
        for shared, sums in [asked(config)]
    ],
)

# %% [markdown]
# How to read a list like this:
#
# * A *large tile* fetches less for each operation ([notebook 4](04_matmul.ipynb)), and makes fewer programs:
#   a small result then leaves multiprocessors without work.
# * *More warps* share the sums, so that a large tile fits into registers; too many leave each with little to
#   do.
# * *More stages* hide the way from memory, until shared memory runs out.
# * Two entries of nearly one speed are one too many: which of them is taken is chance.

# %%
table(
    ["tile", *(f"programs, side {side}" for side in (512, 1024, 4096))],
    [
        [
            tile(config),
            *(
                triton.cdiv(side, int(config["BLOCK_M"])) * triton.cdiv(side, int(config["BLOCK_N"]))
                for side in (512, 1024, 4096)
            ),
        ]
        for config in map(read, lab3.CONFIGS)
    ],
)
say(f"The GPU of the records has {h200.multiprocessors} multiprocessors to give work to.")

# %% [markdown]
# ## A tuning as it happened
#
# With `TRITON_PRINT_AUTOTUNING=1` the autotuner says what it tries, under which key, how long it took and
# what it chose. This is the whole of what it printed on a GPU, for three sizes, the last of them twice.

# %%
trace = lesson_record("autotuning trace")
print("$", trace.command)
print(trace.texts["trace"])

# %% [markdown]
# Four things to see:
#
# 1. Every config that is tried is named. What was pruned before that never appears.
# 2. The key is the sizes that `key` names, and the dtypes of all arguments, which Triton adds.
# 3. The time is that of the first call. It compiles each config and runs it many times.
# 4. The last size was asked for twice and tuned once. The second time its key was known.
#
# The times behind the choice:

# %%
times = {}
for name, time_in_us in trace.figures.items():
    side, _, config = name.partition(": ")
    times.setdefault(tile(read(config)), {})[int(side)] = time_in_us
sides = sorted({side for row in times.values() for side in row})
fastest = {side: min(row[side] for row in times.values() if side in row) for side in sides}


def cell(row, side):
    """A time, marked where it is the fastest of its size."""
    if side not in row:
        return "pruned"
    return f"**{row[side]:,.1f} µs**" if row[side] == fastest[side] else f"{row[side]:,.1f} µs"


table(
    ["tile", *(f"side {side}" for side in sides)],
    [[name, *(cell(row, side) for side in sides)] for name, row in times.items()],
)

# %%
slowest = {side: max(row[side] for row in times.values() if side in row) for side in sides}
for side in sides:
    (winner,) = (name for name, row in times.items() if row.get(side) == fastest[side])
    say(
        f"At side {side} the choice is {winner}; the worst of the list takes "
        f"{slowest[side] / fastest[side]:.1f} times as long."
    )

# %% [markdown]
# ## What `key` means
#
# The autotuner keeps a table from keys to choices. A call whose key is in it costs a look-up; any other is
# tuned. Here the kernel is called with several sizes, and every config that is tried is counted. Without a
# GPU the times are drawn by chance, which does not matter: when it tunes is what is looked at.


# %%
def tried(*shape, turned=False):
    """How many configs one product of this shape makes the autotuner try."""
    m, n, k = shape
    a = torch.ones(m, k, device=device(), dtype=torch.float16)
    b = torch.ones(n, k, device=device(), dtype=torch.float16).T if turned else torch.ones(k, n).to(a)
    c, printed = torch.empty(m, n).to(a), io.StringIO()
    strides = (*a.stride(), *b.stride(), *c.stride())
    with contextlib.redirect_stdout(printed):
        triton.knobs.autotuning.print = True
        lab3.matmul_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](
            a, b, c, a, m, n, k, *strides, BIAS_RELU=False
        )
        triton.knobs.autotuning.print = False
    assert torch.allclose(c.float(), torch.full_like(c, k).float())
    return printed.getvalue().count("Autotuning kernel")


calls = [
    ("first call", (256, 256, 32), False),
    ("the same again", (256, 256, 32), False),
    ("another K", (256, 256, 64), False),
    ("the first again, b stored transposed", (256, 256, 32), True),
    ("another M", (250, 256, 32), False),
]
table(
    ["call", "M, N, K", "configs tried", "keys known afterwards"],
    [
        [name, ", ".join(map(str, shape)), tried(*shape, turned=turned), len(lab3.matmul_kernel.cache)]
        for name, shape, turned in calls
    ],
)

# %% [markdown]
# The fourth line is the one to remember. With `b` transposed other configs may be better, but strides are not
# in the key, so what was found for one layout is used for the other. `described_kernel` of lab 3 has the
# layout in its key for that reason.
#
# The fifth line is the opposite mistake. A key that changes with every call tunes at every call: with a
# batch of new length each time, `M` in the key would be ruinous. The cure is to key on something coarser, the
# next power of two for example, and to let `M` itself be an ordinary argument.

# %%
lengths = range(200, 216)
print("keys, with M itself:          ", len(set(lengths)))
print("keys, with the power above it:", len({triton.next_power_of_2(length) for length in lengths}))

# %% [markdown]
# ## Fewer to try
#
# `early_config_prune` gets the list and the arguments of the call, and returns what is worth a try. That of
# lab 3 drops tiles larger than the result, and large ones for fp32, which has no tensor cores to feed.

# %%
listing(lab3.fitting)

# %%
rows = []
for dtype in (torch.float16, torch.float32):
    for side in (64, 128, 512):
        named = {"bias_ptr": torch.empty(0, dtype=dtype), "M": side, "N": side}
        kept = lab3.fitting(lab3.CONFIGS, named)
        rows.append([str(dtype).removeprefix("torch."), side, f"{len(kept)} of {len(lab3.CONFIGS)}"])
table(["dtype", "side", "configs left"], rows)

# %% [markdown]
# ## A wide space
#
# Before a list is that short, somebody has tried a long one: here one size of the same kernel, with every
# combination of some tiles, depths of a tile, stages and warps.

# %%
space = lesson_record("search space")
found = sorted(
    ((time_in_us, read(name)) for name, time_in_us in space.figures.items()), key=lambda one: one[0]
)
unfit = [read(line) for line in space.texts["space"].splitlines() if "BLOCK_M" in line]
best, far = found[0][0], found[-1][0] / found[0][0]
figure, axes = canvas(7, 3)
axes.plot([time_in_us / best for time_in_us, _ in found], "o", color=BLUE, markersize=3)
axes.axhline(1, color=ORANGE, linewidth=1)
axes.set_yscale("log")
axes.set_xlabel("configs, fastest first")
axes.set_ylabel("time over that of the fastest")
shown(
    figure,
    f"{len(found)} configs by time; the slowest takes {found[-1][0] / best:.0f} times that of the fastest",
)

# %%
near = sum(time_in_us <= best * 11 / 10 for time_in_us, _ in found)
median = found[len(found) // 2][0] / best
say(
    f"{len(found)} configs ran. {near} lie within a tenth of the fastest, half of them take more than "
    f"{median:.1f} times as long, and the slowest {far:.0f} times. To guess here is a bad bet; to measure "
    "costs a minute, once."
)
table(
    ["place", "tile", "time", "shared memory", "sums a thread"],
    [
        [1 + at, tile(config), f"{time_in_us:,.1f} µs", f"{asked(config)[0] / 1024:.0f} KB", asked(config)[1]]
        for at, (time_in_us, config) in enumerate(found)
        if at < 5 or at >= len(found) - 3
    ],
)

# %% [markdown]
# The wall can be foretold. Whoever asks for more sums than a thread has registers spills them to memory, and
# whoever asks for more shared memory than a program may have does not run at all.

# %%
by_sums = {}
for time_in_us, config in found:
    by_sums.setdefault(asked(config)[1], []).append(time_in_us / best)
table(
    ["sums a thread", "configs", "fastest of them, over the fastest of all", "slowest of them"],
    [
        [sums, len(by_sums[sums]), f"{by_sums[sums][0]:.2f}", f"{by_sums[sums][-1]:.2f}"]
        for sums in sorted(by_sums)
    ],
)
everything = [config for _, config in found] + unfit
too_large = [config for config in everything if asked(config)[0] > limit]
say(f"Counted too large for shared memory: {len(too_large)} of {len(everything)}. Did not fit: {len(unfit)}.")

# %% [markdown]
# Configurations as they were measured by `make tuning`, each beside the PTX that it gave:

# %%
interactive("autotuner")

# %% [markdown]
# ## Three things to know
#
# * **The choice lives as long as the process.** The next one tunes anew, unless `cache_results=True` or
#   `TRITON_CACHE_AUTOTUNING=1` keep it on disk. *Compiled* kernels are kept on disk in any case.
# * **A kernel that is tuned runs many times.** One that adds to what lies in its output adds that often:
#   `reset_to_zero` and `restore_value` name the arguments to mend in between.
# * **The first call is slow, and it is the one you time by mistake.** Warm up first; the grader does.
#
# ## Try it
#
# * Record your own: `python -m grader notebooks --record results/lessons.json` on a GPU, and read its trace.
# * Add a config to the list of your kernel that cannot fit, and see what the autotuner makes of it.
# * Which entry of the list would you drop? Which of the tables above says so?
#
# ---
# Write it yourself: [lab 3, autotuned matmul](../labs/lab3_autotuned_matmul/README.md).
