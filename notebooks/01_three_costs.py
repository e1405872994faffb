# %% [markdown]
# # How a GPU is built, and the three things that cost time
#
# Whatever a kernel does, its time goes to arithmetic, to memory, or to getting started. This page looks at
# the parts of one real GPU, works out which of the three decides for a few operations, and then saves the one
# that can be saved most often: trips to memory, by doing two things in one kernel.

# %%
import torch

from grader.site.notebooks.lesson import (
    BLUE,
    COLOURS,
    ORANGE,
    bench,
    canvas,
    device,
    interactive,
    say,
    shown,
    solution,
    survey,
    table,
)

# %% [markdown]
# ## The parts
#
# A GPU is many small processors, *multiprocessors*, around one large memory. Each has its own registers and a
# small memory of its own, shared by the threads that run there. All of them share a cache, L2, and behind it
# lies DRAM, called HBM on large GPUs.
#
# The figures on this page are those of one GPU, asked and measured by `make survey`. With a GPU of your own,
# the [capstone](../gpu-programming/README.md) begins with the survey of that one.

# %%
h200 = survey()
parts = h200.attributes
registers = 4 * parts.registers_per_multiprocessor
many = parts.multiprocessors

table(
    ["part", "how many", "size of one", "all together"],
    [
        ["registers", many, f"{registers / 1024:.0f} KB", f"{many * registers / 2**20:.0f} MB"],
        [
            "shared memory and L1",
            many,
            f"{parts.shared_bytes_per_multiprocessor / 1024:.0f} KB",
            f"{many * parts.shared_bytes_per_multiprocessor / 2**20:.0f} MB",
        ],
        ["L2", 1, f"{parts.l2_bytes / 2**20:.0f} MB", f"{parts.l2_bytes / 2**20:.0f} MB"],
        *(
            ["DRAM", 1, f"{size / 1e9:.0f} GB", f"{size / 1e9:.0f} GB"]
            for size in [h200.machine.gpu.memory_bytes]
        ),
    ],
)

# %%
threads = many * parts.threads_per_multiprocessor
say(
    f"{parts.threads_per_multiprocessor:,} threads fit on each of the {many} multiprocessors, {threads:,} in "
    "all: a vector shorter than that does not even give each thread one element. They come in warps of "
    f"{parts.warp_size}. While some warps wait for memory, others compute, and the hardware changes between "
    "them at no cost: that is how a GPU hides waiting, and why it wants far more threads than it has units."
)

# %% [markdown]
# ## Near is fast
#
# Read the same data over and over, and the rate depends on where it stays. The survey did that for working
# sets of many sizes. Beyond the size of the L2 the rate falls, the more of the set is missing there.

# %%
reads = sorted(h200.measured.reads, key=lambda one: one.working_set_bytes)
figure, axes = canvas(7, 3)
axes.plot(
    [one.working_set_bytes / 2**20 for one in reads],
    [one.bytes_per_s / 1e12 for one in reads],
    "o-",
    color=BLUE,
    markersize=4,
)
axes.axvline(parts.l2_bytes / 2**20, color=ORANGE, linestyle="--", label="size of the L2")
axes.set_xscale("log", base=2)
axes.set_ylim(bottom=0)
axes.set_xlabel("working set, MB")
axes.set_ylabel("TB/s read")
axes.legend()
shown(figure, "rate of reading against the size of the working set: high inside of the L2, lower beyond it")

# %% [markdown]
# ## The three costs
#
# 1. **Compute**: operations, divided by the rate of the arithmetic.
# 2. **Memory**: bytes that go to DRAM and back, divided by its rate.
# 3. **Overhead**: starting a kernel, from Python to the first instruction.
#
# The first two overlap, so the larger one counts. The third comes on top for each kernel, unless the next one
# can be queued while the last still runs.

# %%
dram = h200.measured.dram_read
launch_us = h200.measured.launch.back_to_back.median_us
node_us = h200.measured.launch.graph_node.median_us
rates = {one.dtype: one.flops_per_s for one in h200.measured.matmul if one.flops_per_s}
table(
    ["cost", "rate on this GPU"],
    [
        ["matrix product in bf16, on tensor cores", f"{rates['bf16'] / 1e12:,.0f} TFLOP/s"],
        ["matrix product in fp32, without them", f"{rates['fp32'] / 1e12:,.0f} TFLOP/s"],
        ["reading from DRAM", f"{dram / 1e12:.2f} TB/s"],
        ["starting a kernel from Python, one after another", f"{launch_us:.1f} µs"],
        ["the same as a node of a CUDA graph", f"{node_us:.1f} µs"],
    ],
)
say(
    f"In the time of one launch {dram * launch_us / 1e12:.0f} MB can be read, or "
    f"{rates['bf16'] * launch_us / 1e15:.1f} GFLOP computed."
)

# %% [markdown]
# Which cost decides follows from the shapes alone. Bytes are counted once for each input and each result.


# %%
def decided(flops, bytes_moved, rate):
    """Microseconds for arithmetic, memory and launch, and which is the largest."""
    times = {"compute": 1e6 * flops / rate, "memory": 1e6 * bytes_moved / dram, "overhead": launch_us}
    return [*(f"{time:,.1f} µs" for time in times.values()), max(times, key=times.get)]


def matmul(side):
    """FLOPs and bytes of a square product in 16 bits."""
    return 2 * side**3, 3 * 2 * side**2


operations = {
    "add, 2^14 fp32": (2**14, 3 * 4 * 2**14, rates["fp32"]),
    "add, 2^28 fp32": (2**28, 3 * 4 * 2**28, rates["fp32"]),
    "ReLU, 8192 by 8192 bf16": (8192**2, 2 * 2 * 8192**2, rates["fp32"]),
    "matmul, side 256 bf16": (*matmul(256), rates["bf16"]),
    "matmul, side 8192 bf16": (*matmul(8192), rates["bf16"]),
    "matrix times vector, 8192 bf16": (2 * 8192**2, 2 * 8192**2, rates["bf16"]),
}
table(
    ["operation", "compute", "memory", "launch", "decides"],
    [[name, *decided(*counts)] for name, counts in operations.items()],
)

# %% [markdown]
# ## One number for it: FLOP per byte
#
# The quotient of operations and bytes is the *arithmetic intensity*. The quotient of the two rates is a
# property of the GPU, its *ridge*: below it an operation waits for memory, above it for the arithmetic.

# %%
ridge = h200.measured.ridges["bf16"]
figure, axes = canvas(7, 3)
ends = [1 / 16, ridge, 16 * ridge]
axes.plot(ends, [min(rates["bf16"], dram * one) / 1e12 for one in ends], color="black", label="measured roof")
for number, (name, (flops, moved, _)) in enumerate(operations.items()):
    intensity = flops / moved
    height = min(rates["bf16"], dram * intensity) / 1e12
    axes.plot(intensity, height, "osD^vP"[number], color=COLOURS[number], label=name)
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_xlabel("FLOP per byte")
axes.set_ylabel("TFLOP/s that can be reached")
axes.legend(fontsize=7)
shown(figure, f"roofline with its ridge at {ridge:.0f} FLOP per byte, and the operations of the table on it")

# %% [markdown]
# And every kernel of the course, as it was measured:

# %%
interactive("roofline")

# %% [markdown]
# Nearly all of a model but its large matrix products lies on the slope. There arithmetic is free, and what
# costs is every trip to memory. So the way to make it faster is to make fewer trips.
#
# ## Fusion, counted
#
# $y = \mathrm{relu}(x W)$ as two operators: the product writes its result, the ReLU reads that and writes it
# again. As one kernel the ReLU happens in registers, before the only store. Two of the three trips of the
# result are gone.


# %%
def trips(side):
    """Bytes of relu(x @ w) in 16 bits: as two kernels, and as one."""
    matrix = 2 * side**2
    return 5 * matrix, 3 * matrix


table(
    ["side", "two kernels", "one kernel", "saved", "at the rate of DRAM", "of the time of the product"],
    [
        [
            side,
            f"{two / 1e6:,.1f} MB",
            f"{one / 1e6:,.1f} MB",
            f"{(two - one) / two:.0%}",
            f"{1e6 * (two - one) / dram:,.1f} µs",
            f"{(two - one) / dram / (matmul(side)[0] / rates['bf16']):.1%}",
        ]
        for side in (1024, 2048, 4096, 8192, 16384)
        for two, one in [trips(side)]
    ],
)

# %% [markdown]
# A fixed share of the bytes, and a shrinking share of the time: the product grows with the third power of the
# side, its result with the second. Fusion pays most where there is least arithmetic.
#
# ## Fusion, run
#
# Lab 3 asks for this kernel, with a bias added before the ReLU. On a small size, against fp64:

# %%
lab3 = solution("lab3_autotuned_matmul/autotuned_matmul.py")
torch.manual_seed(1)
x, w, bias = (
    torch.randn(shape, device=device(), dtype=torch.float16) for shape in ((96, 64), (64, 80), (80,))
)
exact = torch.relu(x.double() @ w.double() + bias.double())
fused = lab3.matmul_bias_relu(x, w, bias)
apart = torch.relu(lab3.matmul(x, w) + bias)
for name, y in (("one kernel", fused), ("product, then the rest", apart)):
    print(f"{name}: largest error {(y - exact).abs().max().item():.4f}")

# %% [markdown]
# The fused result is the more exact one, too: its sums are rounded to 16 bits once, after everything is done.
#
# ## Fusion, measured
#
# `addmm` and then `relu` are two kernels, `_addmm_activation` is cuBLAS with a fused epilogue, *ours* is the
# kernel of lab 3. The gain is over two kernels.

# %%
measured = bench("matmul_bias_relu", "h200-bench-bias-relu.json")
rows = []
for one in measured.sizes:
    side = one.size["n"]
    two, library, ours = (one.arms[arm] for arm in ("addmm, relu NN", "_addmm_activation NN", "ours NN"))
    foreseen = (trips(side)[0] - trips(side)[1]) / dram / (matmul(side)[0] / rates["bf16"])
    rows.append(
        [
            side,
            *(f"{arm.median_us:,.1f} µs" for arm in (two, library, ours)),
            f"{two.median_us / library.median_us - 1:+.1%}",
            f"{two.median_us / ours.median_us - 1:+.1%}",
            f"{foreseen:+.1%}",
        ]
    )
table(["side", "two kernels", "cuBLAS, fused", "ours", "gain of cuBLAS", "our gain", "bytes foretold"], rows)

# %% [markdown]
# In the record the bytes foretell what cuBLAS gains at all but the smallest size: what the second kernel
# costs is its trips. The smallest result never leaves L2, and there the count promises too much. Our own gain
# is less even, because another kernel multiplies, too: compare its times with those of
# [notebook 4](04_matmul.ipynb).
#
# ## The same for a chain
#
# Where there is no matrix product to hide behind, fusion is all there is. A chain of $k$ elementwise
# operators makes $2k$ trips, fused it makes two.

# %%
lengths = range(1, 9)
figure, axes = canvas(6, 2)
axes.plot(lengths, [2 * k for k in lengths], "s-", color=ORANGE, label="one kernel each")
axes.plot(lengths, [2 for _ in lengths], "o-", color=BLUE, label="fused")
axes.set_xlabel("operators in the chain")
axes.set_ylabel("trips to memory")
axes.legend()
shown(figure, "trips to memory: twice the number of operators, or two when fused")

# %% [markdown]
# This is what `torch.compile` does for you, and what a kernel of your own does where it does not. The rest of
# the notebooks is about writing such kernels.
#
# ## Try it
#
# * How long would a matrix product have to be along $K$, for a result of fixed size, until the ReLU is lost
#   in it? Compute it from `dram` and `rates`.
# * Put a softmax of 32768 rows and 4096 columns into `operations`. Five operations an element will do.
# * Which of the three costs does a CUDA graph save?
#
# ---
# Begin: [lab 1, elementwise add](../labs/lab1_elementwise_add/README.md). The fused kernel is
# [lab 3](../labs/lab3_autotuned_matmul/README.md).
