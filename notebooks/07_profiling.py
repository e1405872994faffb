# %% [markdown]
# # Profiling: find the number that decides
#
# A kernel is slower than you hoped. Three tools answer three different questions, and they are asked in this
# order:
#
# 1. `torch.profiler`: does the GPU have work all the time, and which operator gave it?
# 2. Proton, Triton's own profiler: which kernel takes the time, and how far from the limit of the hardware is
#    it?
# 3. Nsight Compute, `ncu`: why is this one kernel not faster?
#
# Each costs more to run and to read than the one before. Most questions end at the first.

# %% [markdown]
# ## torch.profiler: who keeps the GPU busy
#
# The same softmax three times: as one writes it, in five operators; the same five lines under
# `torch.compile`; and the kernel of lab 2. The profiler prints a table, one line for each operator and each
# kernel.

# %%
import json

from grader.site.notebooks import lesson

profiled = lesson.told("torch profiler")
ARMS = ("five operators", "torch.compile", "lab 2")
print(profiled.texts["table, five operators"])

# %% [markdown]
# How to read it:
#
# * Lines come in pairs. `aten::div` is the operator: its CPU columns are what PyTorch did before a kernel
#   could start, and the time of its kernel is booked on it as well. The kernel itself stands near it, by the
#   name that its compiler gave it, with the same time and no CPU time. Do not add the two.
# * `Self` counts a line without what it called; `total` counts both. Sort by `Self CUDA` to find kernels.
# * `# of Calls` beside a kernel tells how often it ran. More kernels than you wrote means more trips to
#   memory.
# * `Activity Buffer Request` is the profiler at work on itself, and `cudaDeviceSynchronize` is the CPU
#   waiting for the GPU. Neither is a cost of your program.
# * The two sums below the table decide the first question. Where CPU time, without those two, is far above
#   CUDA time, the GPU waits for Python, and no kernel will help.


# %%
def kernels(arm):
    """The events of one call that ran on the GPU, in their order."""
    return [event for event in json.loads(profiled.texts[f"events, {arm}"]) if event["on_gpu"]]


def launches(arm):
    """What the CPU did to start them."""
    calls = [event for event in json.loads(profiled.texts[f"events, {arm}"]) if not event["on_gpu"]]
    return [event for event in calls if "Launch" in event["name"]]


least = 2 * profiled.figures["bytes_read"]  # each element once in, once out
rows = []
for arm in ARMS:
    ran = kernels(arm)
    us = sum(event["us"] for event in ran)
    span = ran[-1]["start_us"] + ran[-1]["us"] - ran[0]["start_us"]
    rows.append((arm, len(ran), f"{us:.0f} µs", f"{100 * us / span:.0f} %", f"{least / us / 1e6:.2f} TB/s"))
lesson.table(("softmax", "kernels", "time on the GPU", "of it busy", "least bytes over time"), rows)

# %% [markdown]
# The table of the profiler hides the order. The events have it: below, what the CPU launched stands in the
# upper lane of each plot, and what the GPU ran in the lower one.

# %%
figure, axes = lesson.canvas(8, 4)
lanes, names = [], []
for number, arm in enumerate(ARMS):
    begin = launches(arm)[0]["start_us"]
    for lane, events, colour in ((0, launches(arm), lesson.ORANGE), (1, kernels(arm), lesson.BLUE)):
        place = -(3 * number + lane)
        spans = [(event["start_us"] - begin, max(event["us"], 1.0)) for event in events]
        axes.broken_barh(spans, (place - 0.4, 0.8), color=colour, edgecolor="white", linewidth=0.5)
        lanes.append(place)
        names.append(f"{arm}: {'GPU' if lane else 'launches'}")
axes.set_yticks(lanes, names)
axes.set_xlabel("µs since the first launch of the call")
words = "; ".join(f"{arm}: {', '.join(event['name'][:30] for event in kernels(arm))}" for arm in ARMS)
lesson.shown(figure, f"Kernels in order. {words}")

# %% [markdown]
# Launches of the five operators are over before their kernels start: the CPU runs ahead, and kernels queue up
# behind each other without a gap. That is how it should be. A gap between two bars of the GPU with no launch
# in front of it would be time lost to Python.
#
# Where the first launch is a long bar, that is the profiler again, which sets itself up at the first kernel
# that it sees. So never judge by one call: the table above is of several.
#
# The profiler needs no GPU to show the CPU's side. This is the same function on this machine's CPU:


# %%
def on_the_cpu():
    import torch

    from grader.site.notebooks.torch_profiler import events, in_five_steps

    x = torch.randn(64, 512)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        in_five_steps(x)
    for event in events(seen):
        print(event["name"])


lesson.apart(on_the_cpu)

# %% [markdown]
# ## Proton: which kernel, and how far from the limit
#
# Proton asks the driver for each kernel's time and files it under scopes that you name:
#
# ```python
# import triton.profiler as proton
#
# proton.start("session")
# with proton.scope("my product"):
#     matmul(a, b)
# proton.finalize()   # writes session.hatchet; `proton-viewer -m time/us session.hatchet` prints it
# ```
#
# The file is JSON: a tree with a frame and metrics for each node. It needs no viewer.

# %%
session = lesson.told("proton")
root, *devices = json.loads(session.texts["tree"])


def nanoseconds(node):
    """Time of a node and of all below it."""
    return node["metrics"].get("time (ns)", 0) + sum(map(nanoseconds, node["children"]))


def leaves(node):
    """The kernels below a node."""
    return [node] if not node["children"] else [leaf for child in node["children"] for leaf in leaves(child)]


def drawn(node, depth=0):
    """A line for each node: time, how often, name."""
    count = node["metrics"].get("count", "")
    print(f"{nanoseconds(node) / 1e3:12,.1f} µs {count!s:>5}  {'  ' * depth}{node['frame']['name'][:70]}")
    for child in node["children"]:
        drawn(child, depth + 1)


drawn(root)

# %% [markdown]
# A scope with several kernels below it is one call that launched them all. `lab 4 layer_norm_linear` first
# computes the statistics of rows and scales the weight, then multiplies; the share of each is in the tree.
#
# Time alone does not say whether a kernel is good. Divide the work by it, and compare with what the GPU can
# do: bytes where bytes decide, FLOPs where they do.

# %%
calls, peak = session.figures["calls"], session.machine.gpu
rows = []
for scope in root["children"]:
    name = scope["frame"]["name"]
    us = nanoseconds(scope) / 1e3 / calls
    flops, moved = session.figures[f"{name}, flops"], session.figures[f"{name}, bytes"]
    rate = f"{flops / us / 1e6:.0f} TFLOP/s" if flops else f"{moved / us / 1e6:.2f} TB/s"
    share = flops / us * 1e6 / peak.peak_flops if flops else moved / us * 1e6 / peak.bandwidth
    rows.append((name, len(leaves(scope)), f"{us:.1f} µs", rate, f"{100 * share:.0f} %"))
lesson.table(("scope", "kernels", "a call", "rate", "of the specification"), rows)

# %% [markdown]
# No kernel reaches its specification. `torch.mm` is the honest measure for a product, and a copy for a row
# kernel; the survey of the GPU has both. Proton leaves out what the CPU does: a call that is fast here and
# slow in your program waits for its launch, which is the first tool's business.

# %% [markdown]
# All kernels of the course against both limits at once: under the slope memory decides, under the flat part
# arithmetic. A kernel near its roof is done; one far below has a reason, and the next tool looks for it.

# %%
lesson.interactive("roofline")

# %% [markdown]
# ## Nsight Compute: one kernel, line by line
#
# `ncu` runs a kernel many times, each time with other counters switched on. It prints a page of sections.
# This is the page of lab 4's softmax, as it was printed.

# %%
pages = lesson.told("ncu")
page = pages.texts["lab 4 softmax"]
print(f"$ {pages.command}\n")
print(page)

# %% [markdown]
# Now the same page again, only the lines that decide something, each with the question that it answers. The
# values are cut from the page above.

# %%
import re

QUESTIONS = (
    ("Registers Per Thread", "how many warps fit: all of a multiprocessor share its registers"),
    ("Dynamic Shared Memory Per Block", "how many programs fit beside each other"),
    ("Block Limit Registers", "programs that fit, if registers were all; the smallest limit decides"),
    ("Block Limit Shared Mem", "the same for shared memory"),
    ("Waves Per SM", "programs over places for them; a little above a whole number leaves a tail"),
    ("Theoretical Occupancy", "warps that fit, of those that a multiprocessor can hold"),
    ("Achieved Occupancy", "warps that were there; far below: too few programs, or of unequal length"),
    ("Memory Throughput", "the busiest part of the road to memory"),
    ("DRAM Throughput", "the same for HBM alone: near its limit, fewer bytes are the only way on"),
    ("L1/TEX Hit Rate", "loads that found their line on the multiprocessor"),
    ("L2 Hit Rate", "of what went past L1, the part that did not go to HBM"),
    ("Compute (SM) Throughput", "the busiest pipe of the multiprocessors"),
    ("Warp Cycles Per Issued Instruction", "how long a warp waits between two instructions"),
)


def values(page):
    """Name, unit and value of each line of a page of ncu; the first of each name."""
    found = {}
    for line in page.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) >= 2 and re.fullmatch(r"[\d,.()-]+", cells[-1]):
            found.setdefault(cells[0], (cells[-1], cells[1] if len(cells) > 2 else ""))
    return found


def read(name):
    """The lines worth reading of one page."""
    found = values(pages.texts[name])
    shown = [(line, *found[line], words) for line, words in QUESTIONS if line in found]
    lesson.table(("line", "value", "unit", "what it answers"), shown)
    return found


softmax = read("lab 4 softmax")

# %% [markdown]
# And the product of lab 3. The same lines, another story: few warps, and memory has time.

# %%
product = read("lab 3 matmul")


# %%
def percent(found, line):
    """A line's value as a number."""
    return float(found[line][0].replace(",", ""))


CLOSE = 5  # points: less says nothing, as no clock was fixed


def verdict(found):
    """What comes first, memory or arithmetic, in words."""
    memory, compute = percent(found, "Memory Throughput"), percent(found, "Compute (SM) Throughput")
    if abs(memory - compute) < CLOSE:
        words = "**both are busy**, neither waits for the other"
    else:
        words = f"**{'memory' if memory > compute else 'arithmetic'}** comes first"
    return f"memory {memory:.0f} %, multiprocessors {compute:.0f} %: {words}"


for name, found in (("lab 4 softmax", softmax), ("lab 3 matmul", product)):
    warps = percent(found, "Achieved Occupancy")
    lesson.say(f"`{name}`: {verdict(found)}, with {warps:.0f} % of the warps that could be there.")

# %% [markdown]
# `INF`, `OPT` and `WRN` on a page are rules of ncu, written for any kernel. The first one above is right. The
# one that wants more warps has not seen that memory is busy already; on the product's page there is one about
# barriers, which does not know of a pipeline that goes on behind them. Read the numbers before the advice.
#
# High occupancy is no goal. It is one way to have enough loads under way; a product that copies tiles
# asynchronously has them under way with a few warps.
#
# ## The checklist
#
# When a kernel is slower than its limit, ask in this order, and stop at the first answer that explains it.
#
# | step | look at | it is this, if |
# |---|---|---|
# | occupancy | achieved and theoretical | both are low, and no asynchronous copy hides the waiting |
# | memory | DRAM throughput, bytes against the least possible | near the limit, or too many bytes |
# | compute | tensor pipe, SM throughput | near the limit: the kernel is done, or its instructions are wrong |
# | none is busy | what warps wait for | the first stall names the thing to change |
# | configurations | another tile, other warps | a neighbour is faster |
#
# Two kernels of this repository, as they were when they were slow. Both are CUDA, since their logs hold every
# step that came after: we can see whether the number we stop at was the right one.


# %%
def stalls(record, most=3):
    """What warps waited for, most first."""
    kernel = max(record.counters, key=lambda one: one.figures["duration"].value)
    return [(name, figure.value) for name, figure in list(kernel.stalls.items())[:most]]


steps = lesson.logged()
summing, wmma = lesson.logged_step("03_warp_shuffle.cu"), lesson.logged_step("05_wmma.cu")
for one in (summing, wmma):
    ours, best = one.timing.ours, one.timing.baseline
    lesson.say(
        f"`{one.name}`: {ours.rate:.2f} {one.timing.unit}, and {best.name} {best.rate:.2f} {one.timing.unit} "
        f"({one.machine.gpu.name}, {one.date[:10]})."
    )

# %% [markdown]
# ### First kernel: a sum, with one number for each thread
#
# Step one, occupancy.

# %%
achieved, theoretical = (
    lesson.counter(summing, "achieved occupancy"),
    lesson.counter(summing, "theoretical occupancy"),
)
print(
    f"achieved {achieved:.1f} %, theoretical {theoretical:.1f} %, "
    f"{lesson.counter(summing, 'registers of a thread'):.0f} registers"
)

# %% [markdown]
# Nothing to gain: the multiprocessors are full of warps. Step two, memory.

# %%
dram, read_bytes = lesson.counter(summing, "DRAM throughput"), lesson.counter(summing, "DRAM bytes read")
needed = 4 * summing.size["n"]
print(f"DRAM {dram:.1f} % busy; read {read_bytes / 1e9:.3f} GB, needed {needed / 1e9:.3f} GB")

# %% [markdown]
# No byte too many, and yet memory idles. Step three, compute: does anything else fill up?

# %%
print(
    f"SM throughput {lesson.counter(summing, 'SM throughput'):.1f} %, grid of "
    f"{lesson.counter(summing, 'grid'):,.0f} blocks"
)
for name, cycles in stalls(summing):
    print(f"  {name:<18}{cycles:8.2f} cycles for each instruction")

# %% [markdown]
# Here is the number. Everything waits, and for two things: `long_scoreboard` is a load that has not come
# back, `barrier` is a warp that waits for the others of its block. Each thread has one load under way, then
# meets a barrier, and then its block ends and another must start. The cure is more work for each thread:
# several wide loads under way, and a barrier once, at the end. That is the next file of the ladder:

# %%
after = next(one for one in steps if one.number == summing.number + 1)
names = ("grid", "achieved occupancy", "DRAM throughput", "SM throughput", "duration")
rows = [
    (name, f"{lesson.counter(summing, name):,.1f}", f"{lesson.counter(after, name):,.1f}") for name in names
]
lesson.table(("counter", summing.name, after.name), rows)
print("first stall now:", *stalls(after, 1)[0])

# %% [markdown]
# The first stall is the same one, and longer. That is no contradiction: now memory itself is what they wait
# for, as the second line of the table says. A stall names a reason, not a fault.

# %% [markdown]
# ### Second kernel: a product through `wmma`
#
# The same steps.

# %%
least_bytes = 2 * (wmma.size["m"] * wmma.size["k"] + wmma.size["k"] * wmma.size["n"])
rows = [
    ("1 occupancy, achieved", f"{lesson.counter(wmma, 'achieved occupancy'):.1f} %"),
    ("1 occupancy, theoretical", f"{lesson.counter(wmma, 'theoretical occupancy'):.1f} %"),
    ("1 occupancy: registers of a thread", f"{lesson.counter(wmma, 'registers of a thread'):.0f}"),
    ("2 DRAM throughput", f"{lesson.counter(wmma, 'DRAM throughput'):.1f} %"),
    ("2 memory: bytes read, over the least", f"{lesson.counter(wmma, 'DRAM bytes read') / least_bytes:.2f}"),
    ("3 tensor pipe", f"{lesson.counter(wmma, 'tensor pipe'):.1f} %"),
    ("3 SM throughput", f"{lesson.counter(wmma, 'SM throughput'):.1f} %"),
    *((f"4 stalled: {name}", f"{cycles:.2f} cycles") for name, cycles in stalls(wmma)),
]
lesson.table(("step and counter", "value"), rows)

# %% [markdown]
# 1. Occupancy is low, and it is the theoretical one: registers and shared memory leave room for one block.
#    But copies are asynchronous here, so few warps need not be a fault. Go on.
# 2. Memory has time.
# 3. The tensor pipe is the busiest part, and it is not full. This is what must rise.
# 4. Why is it not full? `wait` and `math_pipe_throttle`: warps issue one small product after the other, and
#    each waits for the pipe. Two warps on each scheduler cannot keep it busy with instructions of this size.
# 5. Configurations: the log tells that other tiles, steps and stages were tried beside it, none faster.
#
# So no knob of this kernel helps, and the instruction itself is the limit. The steps after it change that,
# and the number to watch is the one of step 3. It dips once: `06` takes the large instruction, and is faster
# with a pipe that is less busy, since it spends hardly any instruction on moving operands. Then it climbs:

# %%
ladder = [one for one in steps if wmma.number <= one.number < 11 and one.op == wmma.op]
figure, axes = lesson.canvas(7, 3)
names = [one.name.removesuffix(".cu") for one in ladder]
pipe = [lesson.counter(one, "tensor pipe") for one in ladder]
share = [100 * one.timing.ours.rate / one.timing.baseline.rate for one in ladder]
axes.plot(names, pipe, "o-", color=lesson.BLUE, label="tensor pipe busy, %")
axes.plot(names, share, "s--", color=lesson.ORANGE, label="of the best of cuBLAS, %")
axes.tick_params(axis="x", rotation=30)
axes.set_ylim(0, 110)
axes.legend()
words = ", ".join(f"{name} {value:.0f} %" for name, value in zip(names, pipe, strict=True))
lesson.shown(figure, f"Tensor pipe, step by step: {words}")

# %% [markdown]
# ## Configurations, with the numbers of the autotuner
#
# The last step of the list is the cheapest for a Triton kernel: add a config, and let the autotuner time it.
# What it chose for each size stands in the record of the benchmark. If the winner is at the edge of your
# list, the list is too short.

# %%
norms = lesson.bench("layer_norm_forward", "h200-bench-lab4.json")
rows = [(", ".join(f"{key}={value}" for key, value in one.size.items()), config)
        for one in norms.sizes for config in one.configs.get("ours", {}).values()]  # fmt: skip
lesson.table(("size", "config that layer_norm_kernel ran with"), rows)

# %% [markdown]
# ## Try it
#
# `make profile OP=fused_softmax_forward SIZE=rows=1024,cols=131072` asks `ncu` on your GPU and prints these
# counters for your kernel; `FROM=solutions` does it for the worked one. Before you run it, write down which
# of the four percentages will be the highest.

# %% [markdown]
# And one to decide here. Counters of two row kernels of lab 4, at the longest rows, from a record of `make
# profile`. Which step of the list stops you, and what would you try?

# %%
from grader.measure.kernel_log.profiles import ProfileRecord

text = (lesson.ROOT / "solutions/results/h200-profile-131072.json").read_text("utf-8")
profile = ProfileRecord.model_validate_json(text)
long_rows = {call.op: call.kernels[0] for call in profile.calls}
names = ("achieved occupancy", "theoretical occupancy", "DRAM throughput", "SM throughput", "L2 hit rate",
         "registers of a thread", "local loads")  # fmt: skip
rows = [(name, *(f"{kernel.figures[name].value:,.1f}" for kernel in long_rows.values())) for name in names]
rows.append(("first stall", *(next(iter(kernel.stalls)) for kernel in long_rows.values())))
lesson.table((f"{profile.machine.gpu.name}, {profile.date[:10]}", *long_rows), rows)

# %%
answers = []
for op, kernel in long_rows.items():
    of = {name: kernel.figures[name].value for name in names}
    answers.append(
        f"`{op}`: {of['registers of a thread']:.0f} registers leave room for "
        f"{of['theoretical occupancy']:.0f} % of the "
        f"warps, and they are there. DRAM is {of['DRAM throughput']:.0f} % busy, the multiprocessors "
        f"{of['SM throughput']:.0f} %: nothing is full, so the stall decides, and "
        f"`{next(iter(kernel.stalls))}` is a load "
        "that has not come back."
    )
words = " ".join(answers)
lesson.say(
    f"<details><summary>Answer</summary>\n\n{words} More loads under way, or fewer loads: the row "
    "is read more than once, and "
    "LayerNorm reads weight and bias as well, for each row. What was tried is in "
    "`solutions/README.md`.\n\n</details>"
)

# %% [markdown]
# ---
# Write a kernel worth profiling: [lab 4, production slice](../labs/lab4_production_slice/README.md); its
# speed is what these tools explain.
