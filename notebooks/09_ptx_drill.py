# %% [markdown]
# # The PTX drill: what to look for in your own kernel
#
# Triton compiles for a GPU that need not be there. What it makes, PTX and then machine code (SASS), can be
# read on any laptop, and it answers questions that no timing does: are loads wide, are masks free, are the
# tensor cores used, does the tile fit the registers. This page reads the same kernels compiled for an A100
# (sm_80) and an H100 or H200 (sm_90), side by side.
#
# To read **your own** kernels, change `FROM` in the next cell to `"labs"` and run the page again.

# %%
FROM = "solutions"  # or "labs": your own files
ARCHS = (80, 90)

# %%
import re
from pathlib import Path

from grader.site.notebooks import graded, lesson


def compiled(lab, exercise, arch):
    """The kernels that one call of an exercise of FROM launches, compiled for sm_`arch`."""
    return graded.compiled(lab, exercise, arch, source=FROM)


def prepared(lab, exercise, arch, file):
    """Those of a variant or a wrong answer, whatever FROM is."""
    return graded.compiled(lab, exercise, arch, file=file)


def side_by_side(kernels):
    """Facts of one kernel for each architecture."""
    facts = {
        "instructions in PTX": lambda k: len(re.findall(r"^\s+[@a-z][^\n]*;$", k.ptx, re.MULTILINE)),
        "registers of a thread": lambda k: k.registers,
        "spilled, bytes of a thread": lambda k: k.spill_bytes,
        "shared memory, KB": lambda k: f"{k.shared_bytes / 1024:.0f} of {k.shared_limit_bytes // 1024}",
        "widest global load, bytes": lambda k: max(k.load_widths_bytes, default="none"),
        "tensor cores": lambda k: k.tensor_core or "none",
        "asynchronous copies": lambda k: k.async_copies,
    }
    heads = [f"{k.name}, {k.config}: sm_{arch}" for arch, k in kernels.items()]
    lesson.table(("", *heads), [(name, *(of(k) for k in kernels.values())) for name, of in facts.items()])


add = {arch: compiled(1, "elementwise_add", arch)[0] for arch in ARCHS}
side_by_side(add)

# %% [markdown]
# ## How PTX reads
#
# One instruction a line: what it does, then the register it writes, then what it reads. Registers have no end
# here (`%r1`, `%rd7`, `%p2` for 32 bits, 64 bits and predicates); the number that counts is in the machine
# code. A suffix says the type, and `.loc` lines name the line of your Python file.


# %%
def lines(kernel):
    """Instructions and directives, without what only a debugger reads."""
    skipped = re.compile(r"^\s*(\.loc|//|\.section|\.b8|\$L__tmp|$)")
    code = kernel.ptx.split(".entry")[-1].split(".section")[0]
    kept = (line.split("//")[0] for line in code.splitlines() if not skipped.match(line))
    return [re.sub(r"\s+", " ", line).strip() for line in kept]


def excerpt(kernel, pattern, before=0, behind=0, most=4):
    """The first lines that match, with their surroundings."""
    code, shown = lines(kernel), []
    for number in (n for n, line in enumerate(code) if re.search(pattern, line)):
        if shown and number <= shown[-1]:
            continue
        if len(shown) and number > shown[-1] + 1:
            print("    ...")
        window = range(max(0, number - before), min(len(code), number + behind + 1))
        for at in window:
            print(f"{at:5}  {code[at][:150]}")
        shown += window
        most -= 1
        if not most:
            break
    if not shown:
        print(f"no line matches {pattern}")


excerpt(add[90], r"ctaid", behind=6)

# %% [markdown]
# `%ctaid.x` is `tl.program_id(0)`, `%tid.x` the number of the thread, which Triton never shows you. What
# follows is `pid * BLOCK + arange`: a shift in place of a product, as BLOCK is a power of two known to the
# compiler.
#
# ## Look for 1: `ld.global.v4`
#
# A thread moves four registers from one address at best, which is `.v4.b32` in PTX.

# %%
excerpt(add[90], r"ld\.global", most=2, behind=1)


# %%
def widths(kernel):
    """Bytes of each global load in the PTX."""
    found = re.findall(r"ld\.global\S*?(?:\.v(\d))?\.b(\d+)", "\n".join(lines(kernel)))
    return [int(many or 1) * int(bits) // 8 for many, bits in found]


for arch, kernel in add.items():
    print(f"sm_{arch}: loads of {widths(kernel)} bytes a thread")

# %% [markdown]
# Narrow loads have three usual causes: a stride that hides that neighbours are contiguous, a pointer that may
# not be a multiple of 16 (Triton looks at the arguments of each call), or a block with fewer than four
# elements for each thread. Lanes a grid apart do it too; this wrong answer has them, and it is slow for that
# alone.

# %%
scattered = prepared(1, "elementwise_add", 90, "wrong/neighbours_lie_far_apart.py")[0]
excerpt(scattered, r"ld\.global", most=2)
print("widths:", sorted(set(widths(scattered))), "bytes, in", len(widths(scattered)), "loads")

# %% [markdown]
# ## Look for 2: predicates, which are your masks
#
# `@%p1` in front of an instruction runs it only where predicate `%p1` is true. So a mask costs no branch.
# Follow one back to the comparison that you wrote:

# %%
code = "\n".join(lines(add[90]))
predicate = re.search(r"@(%p\d+) ld\.global", code)[1]
excerpt(add[90], rf"setp\S* {predicate},")
excerpt(add[90], rf"@{predicate} ", most=3)
masked = len(re.findall(r"@%p\d+ ld\.global", code))
print(f"{masked} of {len(widths(add[90]))} loads are predicated")

# %% [markdown]
# One predicate serves all lanes of a wide load. That works where n is a multiple of 16, which Triton notes
# for each argument. For another n it compiles another kernel:


# %%
def loads_for(*sizes):
    import tempfile

    import torch

    from grader.codegen import offline
    from grader.site.notebooks.kernels import solution

    offline.install(90, tempfile.mkdtemp())
    module = solution("lab1_elementwise_add/elementwise_add.py")
    x = torch.empty(1024)
    for n in map(int, sizes):
        kernel = module.elementwise_add_kernel[(1,)](x, x, x, n, BLOCK=1024)
        found = [line.split()[1] for line in kernel.asm["ptx"].splitlines() if " ld.global" in line]
        print(f"n = {n}: {len(found)} loads, {', '.join(sorted(set(found)))}")


lesson.apart(loads_for, "1024", "1009")

# %% [markdown]
# Odd sizes look worse in a benchmark for this reason, and a mask of your own can cost the same.
#
# ## Look for 3: a reduction
#
# `tl.sum` and `tl.max` go in two steps: inside a warp by `shfl.sync.bfly`, which hands a value to another
# thread, then between warps through shared memory, with `bar.sync` so that all have written before one reads.

# %%
softmax = {arch: compiled(2, "softmax_forward", arch)[0] for arch in ARCHS}
side_by_side(softmax)
excerpt(softmax[90], r"shfl\.sync", most=2, behind=1)
excerpt(softmax[90], r"bar\.sync", most=1, before=3, behind=2)


# %%
def count(kernel, pattern):
    """How often an instruction stands in the text, not how often it runs."""
    return len(re.findall(pattern, "\n".join(lines(kernel))))


warps = softmax[90].num_warps
shuffles = count(softmax[90], r"shfl\.sync")
lesson.folded(
    f"The loop reduces twice, a maximum and a sum, over {warps} warps of 32 threads. How many "
    "shuffles do you expect?",
    f"Halving 32 threads takes 5 steps, and {warps} partial results take {(warps - 1).bit_length()} more: "
    f"{2 * (5 + (warps - 1).bit_length())} for both. In the text there are {shuffles}, and "
    f"{count(softmax[90], r'bar.sync')} barriers: warps wait until all have written, and before it "
    "is overwritten.",
)

# %% [markdown]
# Each barrier stops all warps of a program. The tuned variant of lab 4's softmax keeps a maximum and a sum
# for each lane, and reduces these once, at the end of the row; compare.

# %%
fewer = prepared(4, "fused_softmax_forward", 90, "variants/softmax_tuned.py")[0]
rows = [(k.name, k.config, count(k, r"shfl\.sync"), count(k, r"bar\.sync")) for k in (softmax[90], fewer)]
lesson.table(("kernel", "config", "shuffles", "barriers"), rows)

# %% [markdown]
# ## Look for 4: the tensor cores
#
# `tl.dot` is `mma.sync` on sm_80: one warp multiplies a small tile whose operands lie in registers. On sm_90
# it is `wgmma.mma_async`: four warps multiply together, B comes straight from shared memory, and nobody waits
# at once. The shape is in the name.

# %%
product = {arch: prepared(3, "matmul", arch, "variants/ladder_2_grouped.py")[0] for arch in ARCHS}
side_by_side(product)
for arch, kernel in product.items():
    print(f"sm_{arch}")
    excerpt(kernel, r"mma\.sync|wgmma\.mma_async", most=1)


# %%
def shape(kernel):
    """m, n and k of its tensor-core instruction."""
    return tuple(map(int, re.search(r"m(\d+)n(\d+)k(\d+)", kernel.ptx).groups()))


for arch, kernel in product.items():
    m, n, k = shape(kernel)
    print(
        f"sm_{arch}: {m} x {n} x {k}, {2 * m * n * k:,} FLOPs, "
        f"{count(kernel, r'mma.sync|wgmma.mma_async')} in the text"
    )

# %%
block = {key: product[90].constants[key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
m, n, k = shape(product[90])
least = block["BLOCK_M"] * block["BLOCK_N"] * block["BLOCK_K"] // (m * n * k)
lesson.folded(
    f"A step multiplies tiles of {' x '.join(map(str, block.values()))}. How many `wgmma` of {m} x "
    f"{n} x {k} is that, and "
    f"how many does each of the {product[90].num_warps // 4} warpgroups issue?",
    f"{least} in all, {least // (product[90].num_warps // 4)} for each warpgroup.",
)

# %% [markdown]
# None of them? Then `tl.dot` got fp32 with `input_precision="ieee"`, or a side of the tile is below 16, or
# the file multiplies and sums by itself:

# %%
plain = prepared(3, "matmul", 90, "wrong/no_dot.py")[0]
print(plain.tensor_core or "no tensor cores", "but", count(plain, r"fma\.rn\.f32"), "fma.rn.f32 in the text")

# %% [markdown]
# ## Look for 5: copies that nobody waits for
#
# `num_stages` above 1 asks for a pipeline: tiles of later steps travel to shared memory while this one is
# multiplied. With pointers that is `cp.async`, as wide as the widest load, then `commit_group`, and
# `wait_group N`, which waits until all but the last N groups have landed.

# %%
excerpt(product[80], r"cp\.async\.c[ag]", most=2)
excerpt(product[80], r"cp\.async\.(commit|wait)_group", most=4)

# %%
waits = sorted({int(n) for n in re.findall(r"cp\.async\.wait_group\s+(\d+)", product[80].ptx)})
lesson.folded(
    f"This config has {product[80].num_stages} stages. Which N do you expect behind `wait_group` in "
    "the loop?",
    f"In the text: {', '.join(map(str, waits))}. The largest is the one in the loop: that many "
    "newer groups stay in "
    "flight. A and B of a step are committed apart, so a stage is two groups. 0 drains the pipeline "
    "at the end.",
)

# %% [markdown]
# With tensor descriptors one thread asks the copy engine (TMA) for a whole tile: `cp.async.bulk.tensor`, and
# an `mbarrier` that counts bytes. No registers hold addresses, and no thread computes masks. sm_80 has no
# such engine, so the same source becomes other code there: see the widest load, and the spills.

# %%
described = {arch: prepared(3, "matmul", arch, "variants/ladder_3_host_descriptors.py")[0] for arch in ARCHS}
side_by_side(described)
excerpt(described[90], r"cp\.async\.bulk\.tensor", most=2)
excerpt(described[90], r"mbarrier\.try_wait", most=1)

# %%
lesson.folded(
    "By how many registers of a thread do descriptors change the sm_90 kernel, and why?",
    f"{product[90].registers} with pointers ({product[90].config}), {described[90].registers} with "
    "descriptors "
    f"({described[90].config}). A tile of pointers is one 64-bit address for each row or column "
    "that a thread touches, "
    "with a mask; a descriptor is one address for all.",
)

# %% [markdown]
# ## Look for 6: registers and spills
#
# PTX cannot tell: its registers have no end. ptxas decides, and what does not fit goes to memory and back,
# `STL` and `LDL` in SASS. A thread has at most 255 of them, and a 128 x 256 tile of fp32 sums on 4 warps asks
# for as many by itself.

# %%
spilling = prepared(3, "matmul", 90, "wrong/large_tile_on_few_warps.py")
lesson.table(
    ("config", "sums of a thread", "registers", "spilled, bytes", "STL and LDL in SASS"),
    [(k.config, k.constants["BLOCK_M"] * k.constants["BLOCK_N"] // (32 * k.num_warps), k.registers,
      k.spill_bytes,
      len(re.findall(r"\b(?:STL|LDL)\b", k.sass))) for k in spilling],
)  # fmt: skip

# %% [markdown]
# ## All of it for one lab
#
# `make inspect LAB=3 ARCH=sm_80` prints these facts for every config of a lab, says what stands out, and
# leaves PTX and SASS in files to read. This is its table for one exercise of `FROM`:

# %%
from grader.student.inspect import remarks

for arch in ARCHS:
    kernels = compiled(3, "matmul", arch)
    names = [Path(f"{k.name}-{number}.ptx") for number, k in enumerate(kernels, start=1)]
    for k in kernels:
        print(
            f"sm_{arch}  {k.name:<18}{k.config:<34}{k.registers:>4} registers {k.spill_bytes:>5} "
            f"spilled  {k.tensor_core}"
        )
    print("\n".join(f"       {line}" for line in remarks(kernels, names, arch, has_dot=True)))

# %% [markdown]
# ## By hand
#
# A launch returns the compiled kernel, and `asm` has every stage: `ttir`, `ttgir`, `llir`, `ptx`, `cubin`. On
# a GPU that is all; print `asm["ptx"]` of what the launch returned. Without one, the stand-in of the course
# compiles only:


# %%
def stages(arch):
    import tempfile

    import torch

    from grader.codegen import offline
    from grader.site.notebooks.kernels import solution

    offline.install(int(arch), tempfile.mkdtemp())
    module = solution("lab1_elementwise_add/elementwise_add.py")
    x = torch.empty(1024)
    kernel = module.elementwise_add_kernel[(1,)](x, x, x, 1024, BLOCK=1024)
    for name, text in kernel.asm.items():
        print(f"{name:<8}{len(text):>8} {'bytes' if isinstance(text, bytes) else 'characters'}")


lesson.apart(stages, "90")

# %% [markdown]
# ---
# Now your own: set `FROM = "labs"` above once
# [lab 3, autotuned matmul](../labs/lab3_autotuned_matmul/README.md) is written, and look for each of the six.
