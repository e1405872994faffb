"""Show the generated code of a lab's launches: a table, what to look at, and PTX and SASS in files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from grader.codegen.kernel_facts import ASYNC_COPY, TENSOR_CORE, CompiledKernel, store_widths
from grader.course.catalog import Entry
from grader.course.items import CODEGEN, graded_items
from grader.course.spec import Verdict, lab_word
from grader.judge.run import Run
from grader.report.terminal import STYLES, explain
from grader.system.text import printable

# Warps that fit on one multiprocessor, from the CUDA programming guide's table of compute capabilities.
MAX_WARPS = {75: 32, 80: 64, 86: 48, 89: 48, 90: 64, 100: 64, 120: 48}
REGISTERS, WIDEST = 65536, 16  # of one multiprocessor; bytes that one thread moves at once
COLUMNS = "    {:<20}{:<50}{:>4}  {:<10}{:<11}{:>6} {:>5} {:>6} {:>6}  {}"
TITLES = ("file", "config", "regs", "warps", "shared KB", "spills", "load", "store", "async", "tensor cores")
LEGEND = """
  the columns
    regs          registers of one thread, which has at most 255
    warps         that fit on one multiprocessor at a time, limited by its 65,536 registers alone
    spills        bytes of each thread that did not fit in its registers and go to local memory
    load, store   bytes that a thread moves with its widest instruction on global memory; 16 is best
    async         asynchronous copies from global to shared memory: instructions, not executions"""
GUIDE = (
    (re.compile(r"\bld\.global"), "ld.global", "loads from global memory; .v4.b32 is 16 bytes per thread"),
    (ASYNC_COPY, "cp.async", "starts a copy from global to shared memory; wait_group waits for it"),
    (TENSOR_CORE, "mma", "tensor cores: m64n256k16 adds 16 products to each of 64 x 256 sums"),
    (re.compile(r"\bbar\.sync"), "bar.sync", "all warps of the program wait here for each other"),
    (re.compile(r"\bst\.global"), "st.global", "stores the result; the @%p before it is your mask"),
)
AUTOTUNING = """
  TRITON_PRINT_AUTOTUNING=1 make grade LAB={lab}, on a GPU, shows the autotuner at work
    Autotuning kernel ... with config ...   tries one config; if `failed with` follows, this GPU cannot run it
    with key as (...)                       the arguments in key= and the dtypes; each new set is tuned again
    finished after ...s                     seconds for all configs of this key, compiling included
    best config selected: ...               the fastest, used from now on for this key
    The time of each config is in the dict KERNEL.configs_timings after the call; it is not printed."""
NARROW = (
    "the addresses of neighbouring lanes are scattered, or a mask or stride hides that they are contiguous, "
    "or the block is small"
)
NO_DOT = "tl.dot is called on fp32 with input_precision='ieee', or a side of a tile is below 16"


def inspect_lab(entry: Entry, source: Path, arch: int, folder: Path, console: Console) -> None:
    """Compile what each exercise of a lab launches, print the findings, write PTX and SASS to `folder`."""
    if arch not in MAX_WARPS:
        raise click.UsageError(f"--arch sm_{arch}: choose one of sm_{', sm_'.join(map(str, MAX_WARPS))}")

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style))

    files, tuned = [], False
    # If one function of a file must use tensor cores, expect them of the file's other functions, too.
    with_dot = {
        each.file for each in entry.lab.exercises if each.codegen and "tensor cores" in each.codegen.checks
    }
    for item in {q.exercise: q for q in graded_items(entry) if q.kind == CODEGEN}.values():
        name = item.exercise.name
        lab = lab_word(entry.folder.name, entry.number)
        say(f"\n{lab}  {name}, compiled for sm_{arch}, {item.case.name}", "bold")
        # Each exercise has its own run: in the process of an earlier one, the autotuner has already chosen.
        with closing(Run(source, "codegen", seed=0, gpu=None, arch=arch)) as run:
            run.warm([item])
            outcome = run.answer(item)
            kernels = run.kernels(item) if outcome.verdict in (Verdict.PASS, Verdict.WRONG) else []
        if not kernels:
            lines = explain(replace(item, name=name), outcome)
            say("  " + "\n".join(lines), STYLES.get(outcome.verdict.value, "red"))
            continue
        written = write(kernels, folder / entry.folder.name, name, arch)
        say("\n".join(_table(kernels, written, arch)))
        has_dot = item.exercise.file in with_dot
        say("\n    ".join(["  what to look at", *remarks(kernels, written, arch, has_dot)]))
        files += written
        tuned |= any(k.ptx for k in kernels) and len({k.name for k in kernels}) < len(kernels)
    if files:
        explanations = [*guide(files[0]), AUTOTUNING.format(lab=lab.removeprefix("lab ")) if tuned else ""]
        say("\n".join([LEGEND, "", *(explanations if files[0].suffix == ".ptx" else ())]))


def write(kernels: Sequence[CompiledKernel], folder: Path, name: str, arch: int) -> list[Path]:
    """Write PTX and SASS of each kernel as `name`-1.ptx, `name`-2.ptx and so on; return the PTX files.

    Files of an earlier call are removed. For CUDA C++ there is only SASS, and those files are returned.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob(f"{name}-*.ptx"), *folder.glob(f"{name}-*.sass")]:
            old.unlink()
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be written to: {error.strerror}") from None
    files = [folder / f"{name}-{number}.ptx" for number in range(1, len(kernels) + 1)]
    for kernel, file in zip(kernels, files, strict=True):
        heading = ", ".join(filter(None, [f"// {kernel.name}", kernel.config, f"sm_{arch}\n"]))
        if kernel.ptx:
            file.write_text(heading + kernel.ptx, "utf-8")
        file.with_suffix(".sass").write_text(heading + kernel.sass, "utf-8")
    return [
        file if kernel.ptx else file.with_suffix(".sass") for kernel, file in zip(kernels, files, strict=True)
    ]


def resident_warps(kernel: CompiledKernel, arch: int) -> int:
    """Return how many warps fit on one multiprocessor by registers, which a warp gets in units of 256."""
    of_a_warp = -(-32 * kernel.registers // 256) * 256
    together = kernel.num_warps or 1  # 0 for CUDA C++, where only the launch knows it
    return min(REGISTERS // of_a_warp, MAX_WARPS[arch]) // together * together


def _table(kernels: Sequence[CompiledKernel], files: Sequence[Path], arch: int) -> Iterator[str]:
    for name in dict.fromkeys(kernel.name for kernel in kernels):
        yield f"  {name}, in {files[0].parent}"
        yield COLUMNS.format(*TITLES)
        for k, file in zip(kernels, files, strict=True):
            if k.name == name:
                warps = f"{resident_warps(k, arch)} of {MAX_WARPS[arch]}"
                shared = f"{k.shared_bytes / 1024:.0f} of {k.shared_limit_bytes // 1024}"
                widest = [max(widths, default="-") for widths in (k.load_widths_bytes, store_widths(k.sass))]
                facts = (warps, shared, k.spill_bytes, *widest, k.async_copies, k.tensor_core or "none")
                yield COLUMNS.format(file.stem, k.config, k.registers, *facts)


def remarks(kernels: Sequence[CompiledKernel], files: Sequence[Path], arch: int, has_dot: bool) -> list[str]:
    """Return one line for each finding, with the kernels it is from; `has_dot` expects a matrix product."""
    seen: dict[str, list[str]] = {}
    for kernel, file in zip(kernels, files, strict=True):
        for words in _signs(kernel, arch, has_dot):
            seen.setdefault(words, []).append(file.stem)
    lines = [
        f"{', '.join(at) if len(at) < len(files) else 'everywhere'}: {words}" for words, at in seen.items()
    ]
    return lines or ["nothing stands out: wide loads and stores, no spills, enough shared memory"]


def _signs(k: CompiledKernel, arch: int, has_dot: bool) -> Iterator[str]:
    if k.spill_bytes:
        yield "registers spill to memory: use more warps for a tile, or a smaller tile"
    if k.shared_bytes > k.shared_limit_bytes:
        yield "too much shared memory, so the kernel cannot launch: use fewer stages or a smaller tile"
    if has_dot and not k.tensor_core:
        yield f"no tensor cores: {NO_DOT if arch >= 80 else 'Triton uses none on this GPU'}"
    if has_dot and arch >= 80 and not k.async_copies:
        yield "no async copies, so each step waits for its loads: set num_stages to 3 or more"
    for what, widths in (("loads", k.load_widths_bytes), ("stores", store_widths(k.sass))):
        if widths and widths[0] < WIDEST:
            yield f"{what} are {widths[0]} bytes wide at most, not {WIDEST}: {NARROW}"


def guide(file: Path) -> Iterator[str]:
    """Yield lines that say where each instruction of GUIDE first occurs in a PTX file, and what it does."""
    lines = file.read_text("utf-8").split("\n")
    yield f"  how to read {file}\n    {'.loc':<22}the comment after it names a line of your file"
    for pattern, name, words in GUIDE:
        first = next((number for number, line in enumerate(lines, 1) if pattern.search(line)), None)
        yield f"    {name:<11}{f'line {first}' if first else 'not there':<11}{words}"
    yield f"    {'STL, LDL':<11}{'in .sass':<11}spilled registers; not in PTX, whose registers are unlimited"
