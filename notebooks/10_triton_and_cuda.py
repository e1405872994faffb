# %% [markdown]
# # What Triton makes hard, next to CUDA
#
# Triton decides how a block is spread over threads, when data is copied, and who waits for whom. That is why
# a matrix product fits on a page. It is also why some things are hard to say. This page takes four of them,
# each on kernels of this repository that do the same work: in Triton, in Gluon (Triton's lower level, where
# layouts, buffers and barriers are yours) and in CUDA C++. Sources are cut from the files, and figures from
# the records, when the page is built.
#
# | | Triton | Gluon | CUDA |
# |---|---|---|---|
# | asynchronous copies | `num_stages` | by hand | by hand |
# | warp specialisation | where the compiler does it | `gl.warp_specialize` | by hand |
# | persistent programs | a loop | a loop | a loop |
# | work across blocks | atomics, or a second launch | the same | clusters, cooperative grids, fences |

# %%
from grader.site.notebooks import lesson

MATMUL = "solutions/lab3_autotuned_matmul/variants"
CUDA = "solutions/gpu-programming/cuda-kernels"
LANGUAGE = {".py": "python", ".cu": "cpp"}


def piece(file, first, last):
    """Lines of a file from the first that contains `first` to the next that contains `last`."""
    path = lesson.ROOT / file
    lines = path.read_text("utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if first in line)
    stop = next(n for n, line in enumerate(lines) if n >= start and last in line)
    indent = min(len(line) - len(line.lstrip()) for line in lines[start : stop + 1] if line.strip())
    shown = "\n".join(line[indent:] for line in lines[start : stop + 1])
    place = f"`{path.parent.name}/{path.name}`, lines {start + 1} to {stop + 1}"
    lesson.say(f"{place}\n\n```{LANGUAGE[path.suffix]}\n{shown}\n```")


# %% [markdown]
# Kernels were measured on different days, and a GPU that runs against its power limit is not equally fast
# each day. So every figure below is a share of the best library call **of the same run**.

# %%
from grader.measure.bench.record import BenchRecord


def recorded(file):
    """The operation of a stored benchmark, which has all rungs of a ladder."""
    path = lesson.ROOT / "solutions/results" / file
    record = BenchRecord.model_validate_json(path.read_text("utf-8"))
    print(
        f"{record.ops[0].name}: measured on an {record.machine.gpu.name}, record {file}, {record.date[:10]}"
    )
    return record.ops[0]


triton_record, cuda_record = recorded("h200-bench-matmul.json"), recorded("h200-bench-cuda-matmul.json")


def share(record, arm, side):
    """Speed of an arm at one size, in percent of the fastest baseline; None where it was not measured."""
    for one in record.sizes:
        names = [name for name in one.arms if name == arm or name.startswith(f"{arm} N")]
        if one.size["m"] == side and names:
            rates = [one.arms[name].rate for name in names if one.arms[name].rate]
            return 100 * max(rates) / one.arms[one.baseline].rate if rates else None
    return None


sides = [one.size["m"] for one in triton_record.sizes]
print("sizes in the record of Triton:", sides)

# %% [markdown]
# ## 1. Asynchronous copies
#
# A load takes hundreds of cycles, so tiles must be on their way before they are needed. In Triton you write a
# load and a product; how many steps ahead it is loaded is one number beside the launch, `num_stages`.

# %%
piece(f"{MATMUL}/ladder_2_grouped.py", "tl.assume(K > 0)", "b_ptrs += BLOCK_K")

# %% [markdown]
# Nothing here says *asynchronous*. In CUDA all of it is said: a ring of buffers, one barrier that counts the
# bytes that have landed, another one that says who has finished reading.

# %%
piece(f"{CUDA}/matmul/08_producer_consumer.cu", "if (warpgroup == 0) {", "} else {")

# %%
piece(f"{CUDA}/matmul/08_producer_consumer.cu", "barrier_wait(full + ring.stage", "previous = ring.stage")

# %% [markdown]
# What is hard in Triton is not to write it but to insist on it. The first line of the Triton piece,
# `tl.assume(K > 0)`, adds nothing to the result. Its comment in the file says why it is there: without it, a
# version of the compiler waited for each product one by one for one layout of B. In CUDA that wait is a line
# you did not write.
#
# What the ring is worth, by the log of the CUDA ladder: step 6 has the copy engine, and waits for each pair
# of tiles; step 8 has the ring, and larger tiles.

# %%
steps = [lesson.logged_step(name) for name in ("06_wgmma_tma.cu", "08_producer_consumer.cu")]
lesson.table(
    ("file", "of the best of cuBLAS", "tensor pipe busy", "first stall"),
    [(one.name, f"{100 * one.timing.ours.rate / one.timing.baseline.rate:.0f} %",
      f"{lesson.counter(one, 'tensor pipe'):.0f} %",
      next(iter(one.counters[0].stalls))) for one in steps],
)  # fmt: skip

# %% [markdown]
# And in Triton, from pointers (threads copy) to descriptors (the copy engine copies), with the same tile:

# %%
rungs = {
    "pointers": "ladder_2_grouped",
    "descriptors": "ladder_3_host_descriptors",
    "persistent": "ladder_4_persistent",
}


def shares(names, record):
    """A table of shares: a row for each kernel, a column for each size."""
    rows = []
    for word, arm in names.items():
        cells = [share(record, arm, side) for side in sides]
        rows.append((word, *("-" if cell is None else f"{cell:.0f} %" for cell in cells)))
    lesson.table(("of the best of cuBLAS", *map(str, sides)), rows)


shares(rungs, triton_record)

# %% [markdown]
# ## 2. Warp specialisation
#
# The ring above has two kinds of warps: one that only loads, and others that only multiply. They run
# different code and need different numbers of registers. In CUDA it is an `if`, with two instructions that
# move registers from one side to the other:

# %%
piece(f"{CUDA}/matmul/10_persistent.cu", "give_up_registers<24>();", "Ring ring;")
piece(f"{CUDA}/matmul/10_persistent.cu", "take_registers<240>();", "const int consumer")

# %% [markdown]
# Gluon has a function for it: three workers, the warps of each, and the registers of each.

# %%
piece(f"{MATMUL}/ladder_5_gluon_warp_specialised.py", "gl.warp_specialize(", "[240, 24],")
piece(f"{MATMUL}/ladder_5_gluon_warp_specialised.py", "def load_tiles", "step += 1")

# %% [markdown]
# Compare this loop with the CUDA one: it is the same, barrier for barrier. Triton proper has `tl.range(...,
# warp_specialize=True)`, a request that the compiler may drop without a word. Whether warps are specialised
# can be read without a GPU: only then does the PTX move registers, with `setmaxnreg`.

# %%
from grader.site.notebooks.graded import compiled

rows = []
for file in ("ladder_4_persistent", "ladder_5_gluon_warp_specialised"):
    kernel = compiled(3, "matmul", 90, file=f"variants/{file}.py")[0]
    moves = sorted({line.split()[0] for line in kernel.ptx.splitlines() if "setmaxnreg" in line})
    rows.append((file, kernel.num_warps, kernel.registers, kernel.spill_bytes, ", ".join(moves) or "none"))
lesson.table(("variant", "warps", "registers", "spilled", "register moves"), rows)

# %%
shares({"persistent, Triton": "ladder_4_persistent", "specialised, Gluon": "ladder_5_gluon_warp_specialised",
        "tile by shape, Gluon": "ladder_6_gluon_tile_by_shape",
        "the solution": "ours"}, triton_record)  # fmt: skip

# %% [markdown]
# Look at the ends of the rows. On large products the specialised kernel is the best of ours; on small ones
# its one tile size leaves most of the GPU idle, and the autotuner of plain Triton, which simply takes another
# tile, wins by far. The next rung chooses the tile by shape, by hand, and catches up. Control is not the same
# as speed.
#
# ## 3. Persistent programs
#
# One program a tile starts as many programs as there are tiles, and each begins by waiting for its first
# loads. A persistent kernel starts as many as fit and lets each take tile after tile, so the next tile is
# loaded while the last one is stored. In Triton this is a loop and a flag:

# %%
piece(f"{MATMUL}/ladder_4_persistent.py", "# Flattened, the two loops", "acc = tl.dot(")
piece(f"{MATMUL}/ladder_4_persistent.py", "many = torch.cuda", "persistent_kernel[")

# %% [markdown]
# So what is hard about it? The host must know the number of multiprocessors, the loop must be one that the
# compiler can flatten, and a queue that programs draw from (work of unequal length) needs an atomic for each
# item, in front of loads that should have begun already. The CUDA loop is as short, and the ring simply goes
# on over the end of a tile:

# %%
piece(f"{CUDA}/matmul/10_persistent.cu", "for (int index = blockIdx.x", "for (int step = 0")


# %%
multiprocessors = lesson.survey().attributes.multiprocessors


def waves(side, block_m=128, block_n=256):
    """How often all multiprocessors get a tile, and how full the last time is, in percent."""
    tiles = -(-side // block_m) * -(-side // block_n)
    return tiles, -(-tiles // multiprocessors), 100 * ((tiles - 1) % multiprocessors + 1) / multiprocessors


lesson.table(
    ("side", "tiles of 128 x 256", f"waves on {multiprocessors} multiprocessors", "last wave full"),
    [(side, tiles, many, f"{full:.0f} %") for side in sides for tiles, many, full in [waves(side)]],
)

# %%
steps = [lesson.logged_step(name) for name in ("09_tile_128x256.cu", "10_persistent.cu", "11_tma_store.cu")]
rows = []
for one in steps:
    against = one.timing.against_previous
    rows.append((one.name, f"{one.timing.ours.rate:.0f} {one.timing.unit}", f"{against.ratio:.3f}",
                 f"{against.low:.3f} to {against.high:.3f}",
                 f"{lesson.counter(one, 'tensor pipe'):.0f} %"))  # fmt: skip
lesson.table(("file", "rate", "times the step before", "interval", "tensor pipe busy"), rows)

# %% [markdown]
# An interval that contains 1 is no gain. Persistence alone won nothing that the clock could see; what pays is
# the step it makes possible, in which the stores of one tile run beside the products of the next.
#
# ## 4. Work across blocks
#
# Programs of a Triton kernel are independent. There is no barrier for all of them, and none may wait for
# another, as the other may not have started. A sum over a whole vector needs exactly that. In CUDA the block
# that finishes last can be found with a ticket:

# %%
piece(f"{CUDA}/reduction/06_one_launch.cu", "if (threadIdx.x == 0) {", "*out = sum;")

# %% [markdown]
# It works without a barrier, since nobody waits: whoever is last does the rest. Two fences make it right, and
# a load that passes the L1 by. Triton has the atomic, with `sem="acq_rel"`, too, but no fence of its own and
# no way to keep a buffer between calls inside the kernel. The usual answer is a second launch. Lab 4's
# gradients do it: each program leaves sums of its own, and a second kernel adds them up, always in the same
# order.

# %%
piece(
    "solutions/lab2_online_softmax/variants/rows_split_over_programs.py",
    "def partial_kernel",
    "tl.store(d_ptr",
)
piece("solutions/lab2_online_softmax/variants/rows_split_over_programs.py", "grid, parts =", "PARTS=parts")

# %%
pair = [lesson.logged_step(name) for name in ("05_deterministic.cu", "06_one_launch.cu")]
rows = [(one.name, len(one.counters), f"{one.timing.ours.median_us:.1f} µs",
         f"{100 * one.timing.ours.rate / one.timing.baseline.rate:.1f} %") for one in pair]  # fmt: skip
lesson.table(("file", "launches", "a call", "of the best baseline"), rows)
second = min(pair[0].counters, key=lambda one: one.figures["duration"].value)
lesson.say(f"The second launch of `{pair[0].name}` runs for {second.figures['duration'].value:.1f} µs "
           f"under the profiler, of a sum over {pair[0].size['n']:,} numbers.")  # fmt: skip

# %% [markdown]
# The price of a second launch is fixed, so it counts for short calls and vanishes in long ones.
#
# The other way for blocks to meet is a **cluster**: neighbouring blocks that run at the same time and read
# each other's shared memory. The CUDA ladder has one, in which each of two blocks loads half of B and sends
# it to both:

# %%
piece(f"{CUDA}/matmul/12_cluster_multicast.cu", "const uint32_t half = b_ring", "tma_load_multicast(")
cluster = lesson.logged_step("12_cluster_multicast.cu")
against = cluster.timing.against_previous
lesson.say(f"`{cluster.name}`: {against.ratio:.3f} times the speed of the step before it, "
           f"with an interval of {against.low:.3f} to {against.high:.3f}.")  # fmt: skip

# %% [markdown]
# A page that is hard to write in Triton, and no faster on this GPU. It stays in the log for that reason: what
# others gained on their machine is a hypothesis on yours.
#
# ## What it costs, and what it buys
#
# Lines without blank lines, comments and docstrings, headers of the ladder included, against speed.


# %%
from grader.course.lines_of_code import lines_with_helpers

KERNELS = [
    ("Triton", triton_record, "ladder_1_plain_tiles", f"{MATMUL}/ladder_1_plain_tiles.py"),
    ("Triton", triton_record, "ladder_4_persistent", f"{MATMUL}/ladder_4_persistent.py"),
    ("Triton", triton_record, "ours", "solutions/lab3_autotuned_matmul/autotuned_matmul.py"),
    (
        "Gluon",
        triton_record,
        "ladder_5_gluon_warp_specialised",
        f"{MATMUL}/ladder_5_gluon_warp_specialised.py",
    ),
    ("Gluon", triton_record, "ladder_6_gluon_tile_by_shape", f"{MATMUL}/ladder_6_gluon_tile_by_shape.py"),
    ("CUDA", cuda_record, "05_wmma", f"{CUDA}/matmul/05_wmma.cu"),
    ("CUDA", cuda_record, "11_tma_store", f"{CUDA}/matmul/11_tma_store.cu"),
    ("CUDA", cuda_record, "ours", f"{CUDA}/matmul/13_tile_by_shape.cu"),
]
found = [(word, file.rsplit("/", 1)[1], lines_with_helpers(lesson.ROOT / file),
          *(share(record, arm, side) for side in (1024, 8192)))
         for word, record, arm, file in KERNELS]  # fmt: skip
cells = [
    (word, name, lines, *("-" if one is None else f"{one:.0f} %" for one in rest))
    for word, name, lines, *rest in found
]
lesson.table(("language", "file", "lines", "of cuBLAS at 1024", "at 8192"), cells)

# %%
figure, axes = lesson.canvas(7, 3)
for word, colour, mark in (
    ("Triton", lesson.BLUE, "o"),
    ("Gluon", lesson.GREEN, "s"),
    ("CUDA", lesson.ORANGE, "^"),
):
    for column, filled in ((3, False), (4, True)):
        mine = [(one[2], one[column]) for one in found if one[0] == word and one[column] is not None]
        face = colour if filled else "none"
        label = f"{word}, side {8192 if filled else 1024}"
        axes.scatter(*zip(*mine, strict=True), marker=mark, edgecolor=colour, facecolor=face, label=label)
axes.set_xlabel("lines of code")
axes.set_ylabel("of the best of cuBLAS, %")
axes.set_ylim(0, 110)
axes.legend(fontsize=8)
lesson.shown(figure, "; ".join(f"{one[1]} {one[2]} lines" for one in found))

# %% [markdown]
# The same question for other patterns, where there may be no library call at all. Choose one, and see what
# each way costs in lines of this repository, and what it won in the same run.

# %%
lesson.interactive("choose_your_stack")

# %% [markdown]
# How to choose, then:
#
# * Library call where one does the whole job. A product alone is such a job.
# * `torch.compile` where the pattern is a chain of elementwise operations and a reduction. Look at what it
#   made first.
# * Triton where the pattern has no library call: fusion saves trips to memory, and that is where its speed
#   comes from.
# * Gluon or CUDA where a profile says that waiting *inside* the kernel is what is left, as in the steps
#   above; and only for the shapes that matter, since what you write by hand you must choose by hand for each
#   shape.

# %%
tiles, many, full = waves(1024)
small = {name: share(triton_record, arm, 1024) for name, arm in
         (("specialised", "ladder_5_gluon_warp_specialised"),
          ("by shape", "ladder_6_gluon_tile_by_shape"))}  # fmt: skip
lesson.folded(
    "Why does the specialised kernel lose at a side of 1024, and why is no better pipeline a cure?",
    f"{tiles} tiles of 128 x 256 give work to {full:.0f} % of the multiprocessors, in {many} wave. "
    "The others idle, "
    f"whatever the pipeline does: {small['specialised']:.0f} % of cuBLAS. Smaller tiles: "
    f"{small['by shape']:.0f} %.",
)

# %%
from grader.codegen.kernel_facts import SHARED_LIMIT

stage = (128 * 64 + 256 * 64) * 2
limit = SHARED_LIMIT[90] * 1024
lesson.folded(
    f"A stage holds tiles of 128 x 64 and 256 x 64 in 16 bits. How many fit in {limit // 1024} KB, "
    "and what else must?",
    f"{stage // 1024} KB a stage, so {limit // stage}, and "
    f"{(limit - limit // stage * stage) // 1024} KB are left for the "
    "tile on its way out: a quarter of it at a time, which is why the kernels above store in parts.",
)

# %% [markdown]
# ---
# The rungs of Triton are variants of [lab 3, autotuned matmul](../labs/lab3_autotuned_matmul/README.md); the
# CUDA ladder belongs to [the capstone](../gpu-programming/README.md).
