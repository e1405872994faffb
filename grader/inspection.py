"""Show what the compiler made of a lab's launches: facts, what stands out, and PTX and SASS in files to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from grader.catalog import Entry
from grader.codegen import ASYNC_COPY, TENSOR_CORE, KernelFacts, store_widths
from grader.questions import CODEGEN, questions
from grader.report import STYLES, explain
from grader.run import Run
from grader.sandbox import printable
from grader.spec import Verdict

# Warps that one multiprocessor holds at most, from the CUDA programming guide's table of compute capabilities.
MAX_WARPS = {75: 32, 80: 64, 86: 48, 89: 48, 90: 64, 100: 64, 120: 48}
REGISTERS = 65536  # of one multiprocessor, the same for all of these
WIDEST = 16  # bytes that one thread loads or stores at once
HEADER = f"    {'file':<22}{'config':<34}{'registers':>9}  {'warps':<9}{'shared KB':<12}{'spills':<8}{'load':>4} {'store':>5} {'async':>5}  tensor cores"  # fmt: skip
LEGEND = """
  how to read the table
    registers        of one thread; 255 is the most it can have
    warps            that fit one multiprocessor at a time if nothing but its 65,536 registers counts
    spills           bytes of each thread that did not fit its registers and travel to memory and back
    load, store      bytes that one thread moves with its widest instruction on global memory; 16 is best
    async            copies from global to shared memory that no thread waits for, counted in the text"""
GUIDE = (
    (re.compile(r"\bld\.global"), "ld.global", "loads from global memory; .v4.b32 is four times 4 bytes a thread, the widest"),
    (ASYNC_COPY, "cp.async", "copies global to shared memory and goes on; wait_group is where it is waited for"),
    (TENSOR_CORE, "mma", "tensor cores, one whole tile: m64n256k16 is 64 x 256 sums over 16 of K"),
    (re.compile(r"\bbar\.sync"), "bar.sync", "all warps of the program wait here for each other"),
    (re.compile(r"\bst\.global"), "st.global", "stores the result; masks are the @%p in front"),
)  # fmt: skip
AUTOTUNING = """
  what the autotuner does on a GPU: TRITON_PRINT_AUTOTUNING=1 make grade LAB={number}
    Autotuning kernel ... with config ...    one line for each config tried; `failed with` after it: does not fit this GPU
    with key as (...)                        the arguments in key= and the dtypes: each new set is tuned anew
    finished after ...s                      for compiling and timing all of them; configs you drop make it shorter
    best config selected: ...                the one that runs from now on for this key
    The time of each config is in KERNEL.configs_timings, a dict, after the call."""


def inspect_lab(entry: Entry, source: Path, arch: int, folder: Path, console: Console) -> None:
    """Compile each exercise of a lab that has a codegen case, print what was found, write PTX and SASS below `folder`."""
    if arch not in MAX_WARPS:
        known = " ".join(f"sm_{each}" for each in MAX_WARPS)
        raise click.UsageError(f"--arch sm_{arch}: not known here; choose one of {known}")
    if not source.is_dir():
        raise click.UsageError(f"--from {source}: no such folder")

    def say(line: str, style: str = "") -> None:
        console.print(Text(printable(line), style=style))

    compiled, first_ptx = [], None
    for question in {q.exercise: q for q in questions(entry) if q.kind == CODEGEN}.values():
        name = question.exercise.name
        say(f"\nlab {entry.number}  {name}, compiled for sm_{arch} with {question.case.name}", "bold")
        # A run of its own: in the worker of the exercise before, the autotuner would have made its choice already.
        with closing(Run(source, "codegen", seed=0, gpu=None, arch=arch)) as run:
            run.warm([question])
            outcome = run.answer(question)
            kernels = run.kernels(question) if outcome.verdict in (Verdict.PASS, Verdict.WRONG) else []
        if not kernels:
            heading, *details = explain(replace(question, name=name), outcome)
            say(f"  {heading}", STYLES.get(outcome.verdict.value, "red"))
            for line in details:
                say(line)
            continue
        files = write(kernels, folder / entry.folder.name, name, arch)
        first_ptx = first_ptx or files[0]
        compiled += kernels
        for line in _table(kernels, files, arch):
            say(line)
        say("  what to look at")
        has_dot = any(
            exercise.codegen and "tensor cores" in exercise.codegen.checks for exercise in entry.lab.exercises
        )
        for line in remarks(kernels, [file.stem for file in files], arch, has_dot):
            say(f"    {line}")
        say(f"  written to {files[0].parent}: a .ptx and a .sass for each file of the table", "dim")
    if compiled:
        for line in [*LEGEND.split("\n"), "", *guide(first_ptx)]:
            say(line)
    elif not any(exercise.codegen for exercise in entry.lab.exercises):
        say(f"lab {entry.number} asks for no look at its generated code")
    if len({kernel.name for kernel in compiled}) < len(compiled):
        for line in AUTOTUNING.format(number=entry.number).split("\n"):
            say(line)


def write(kernels: Sequence[KernelFacts], folder: Path, name: str, arch: int) -> list[Path]:
    """PTX and SASS of each kernel as `name`-1.ptx and so on, in place of an earlier look; returns the PTX files."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob(f"{name}-*.ptx"), *folder.glob(f"{name}-*.sass")]:
        old.unlink()
    files = [folder / f"{name}-{number}.ptx" for number in range(1, len(kernels) + 1)]
    for kernel, file in zip(kernels, files):
        heading = f"// {kernel.name}, {kernel.config}, sm_{arch}\n"
        file.write_text(heading + kernel.ptx, "utf-8")
        file.with_suffix(".sass").write_text(heading + kernel.sass, "utf-8")
    return files


def resident_warps(kernel: KernelFacts, arch: int) -> int:
    """Warps on one multiprocessor if only registers counted; a warp gets them in portions of 256."""
    of_a_warp = -(-32 * kernel.registers // 256) * 256
    return min(REGISTERS // of_a_warp, MAX_WARPS[arch]) // kernel.num_warps * kernel.num_warps


def _table(kernels, files, arch) -> Iterator[str]:
    for name in dict.fromkeys(kernel.name for kernel in kernels):
        yield f"  {name}"
        yield HEADER
        for kernel, file in zip(kernels, files):
            if kernel.name == name:
                warps = f"{resident_warps(kernel, arch)} of {MAX_WARPS[arch]}"
                shared = f"{kernel.shared_bytes / 1024:.0f} of {kernel.shared_limit // 1024}"
                load, store = (
                    next(iter(widths), "-") for widths in (kernel.load_widths, store_widths(kernel.sass))
                )
                yield (
                    f"    {file.stem:<22}{kernel.config:<34}{kernel.registers:>9}  {warps:<9}{shared:<12}"
                    f"{kernel.spill_bytes or 'none':<8}{load:>4} {store:>5} {kernel.async_copies:>5}  {kernel.tensor_core or 'none'}"
                )


def remarks(kernels: Sequence[KernelFacts], names: Sequence[str], arch: int, has_dot: bool) -> Iterator[str]:
    """One line for each thing that stands out, with the files it was seen in; `has_dot` expects a matrix product."""
    narrow = "neighbouring lanes do not touch neighbouring addresses, the mask or a stride hides that they do, or the block has too few elements for its warps"  # fmt: skip
    no_dot = "Triton has none for this GPU, nothing in your file" if arch < 80 else "tl.dot takes fp32 with input_precision='ieee', or a tile has a side below 16"  # fmt: skip
    signs = (
        (lambda k: k.spill_bytes, "registers spill to memory: more warps share a tile, or a smaller tile"),
        (lambda k: k.shared_bytes > k.shared_limit, "too much shared memory, this does not start: fewer stages, or a smaller tile"),
        (lambda k: has_dot and not k.tensor_core, f"no tensor cores: {no_dot}"),
        (lambda k: k.load_widths and k.load_widths[0] < WIDEST, f"loads of less than {WIDEST} bytes a thread: {narrow}"),
        (lambda k: max(store_widths(k.sass), default=WIDEST) < WIDEST, f"stores of less than {WIDEST} bytes a thread: {narrow}"),
        (lambda k: has_dot and arch >= 80 and not k.async_copies, "no async copies: each step waits for its loads; num_stages of 3 or more fetches ahead"),
    )  # fmt: skip
    quiet = True
    for sign, words in signs:
        seen = [name for kernel, name in zip(kernels, names) if sign(kernel)]
        if seen:
            quiet = False
            yield f"{'all' if len(seen) == len(names) > 1 else ', '.join(seen)}: {words}"
    if quiet:
        yield "nothing stands out: wide loads and stores, no spills, and the shared memory suffices"


def guide(file: Path) -> Iterator[str]:
    """Where the first of each instruction worth finding stands in a PTX file, and what it does."""
    yield f"  how to read {file}"
    lines = file.read_text("utf-8").split("\n")
    yield f"    {'.loc':<11}{'':<11}the comment behind it names the line of your file that what follows comes from"
    for pattern, name, words in GUIDE:
        first = next((number for number, line in enumerate(lines, 1) if pattern.search(line)), None)
        yield f"    {name:<11}{f'line {first}' if first else 'not there':<11}{words}"
    yield f"    {'STL, LDL':<11}{'in .sass':<11}spilled registers; PTX does not show them yet, only the machine code does"
