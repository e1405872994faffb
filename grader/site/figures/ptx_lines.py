"""The characteristic PTX lines of each config of lab 3's kernels, compiled without a GPU.

`python -m grader.site.figures.ptx_lines` compiles them for sm_90 and stores what the figure shows.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from grader.codegen import ptx
from grader.course import catalog
from grader.course.skeleton import without_bonuses
from grader.system import files
from grader.system.python_calls import call_apart

FILE = catalog.ROOT / "solutions" / "lab3_autotuned_matmul" / "autotuned_matmul.py"
STORED = catalog.ROOT / "solutions" / "results" / "ptx-matmul.json"
ARCH = 90
SIDE = 1024  # any multiple of 16 compiles to the same kernel
BEFORE, LOOP, AFTER = "before the loop", "in the loop", "after the loop"
_REGISTERS = re.compile(r"\{([^{}]*)\}")
_NUMBERED = re.compile(r"%([a-z]+)\d+")


def telling(text: str) -> list[tuple[str, str, int]]:
    """Return the characteristic lines in order: position, instruction, and number of repetitions in a row."""
    lines = text.splitlines()
    begin, end = _loop(lines)
    found: list[list] = []
    for number, line in enumerate(lines):
        if not ptx.family(line):
            continue
        where = BEFORE if number < begin else LOOP if number <= end else AFTER
        short = _short(line)
        if found and found[-1][:2] == [where, short]:
            found[-1][2] += 1
        else:
            found.append([where, short, 1])
    return [tuple(one) for one in found]


def _loop(lines: list[str]) -> tuple[int, int]:
    """Return first and last line of the shortest loop with a tensor-core product; past the end if none."""
    labels = {found[1]: at for at, line in enumerate(lines) if (found := re.match(r"\s*(\$\w+):", line))}
    best = len(lines), len(lines)
    for at, line in enumerate(lines):
        found = re.search(r"\bbra(?:\.uni)?\s+(\$\w+)", line)
        begin = labels.get(found[1], at) if found else at
        inside = any(re.search(r"wgmma\.mma_async|mma\.sync", one) for one in lines[begin:at])
        if begin < at and inside and (best[0] == len(lines) or at - begin < best[1] - best[0]):
            best = begin, at
    return best


def _short(line: str) -> str:
    """Return an instruction in comparable form: no guard, no register numbers, register lists as a count."""
    text = line.strip().rstrip(";").split("//")[0].strip()
    text = re.sub(r"^@!?%p\d+\s+", "", text)
    text = _REGISTERS.sub(_counted, text)
    text = _NUMBERED.sub(r"%\1", text)
    return re.sub(r"\s+", " ", re.sub(r"\s*\+ ?\d+", "", text))


def _counted(found: re.Match) -> str:
    many = len(found[1].split(","))
    return found[0] if many <= 2 else f"{{{many} registers}}"


def compile_all(part: str, source: str, number: int, many: int) -> list[tuple[str, str, str, str]]:
    """Return part, kernel, config and PTX of every `many`-th config of an ordinary call of this source.

    From now on, this process only compiles kernels and never launches one.
    """
    from grader.codegen import offline
    from grader.measure.bench import configs as tuned
    from grader.measure.bench import rounds
    from grader.measure.bench.run import load, op_named
    from grader.measure.bench.tuning import op_beside_library

    op = op_beside_library(op_named("matmul"))
    with tempfile.TemporaryDirectory() as folder:
        offline.install(ARCH, folder)
        path = Path(folder) / FILE.name
        path.write_text(source, "utf-8")
        module = load(path)
        size = dict.fromkeys(("m", "n", "k"), SIDE)
        call = op.arms("ordinary", getattr(module, op.symbol), size)[0].make(rounds.draw(op, size, "cpu"))
        return [
            (part, name, words, text)
            for name, kernel in tuned.autotuned(module).items()
            for words, text in _texts(kernel, call, number, many)
        ]


def _texts(kernel, call, number: int, many: int):
    from grader.measure.bench import configs as tuned

    for config in tuned.wider(list(kernel.configs))[number::many]:
        made = tuned.launched(kernel, config, call)
        if not made:
            return  # the call launches a different kernel
        yield tuned.words(config), made[-1].asm["ptx"]


def parts() -> dict[str, str]:
    """Return the source with and without its BONUS regions; the two launch different kernels."""
    from grader.measure.bench.tuning import NO_BONUS, WHOLE

    source = FILE.read_text("utf-8")
    return {WHOLE: source, NO_BONUS: without_bonuses(source)}


def main(processes: int = 2) -> None:
    """Compile every config, and store its characteristic lines."""
    jobs = [(part, text, at, processes) for part, text in parts().items() for at in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        texts = [one for found in pool.map(lambda job: call_apart(compile_all, *job), jobs) for one in found]
    pool_of_lines: dict[str, int] = {}
    kernels: dict[str, dict] = {}
    for part, kernel, config, text in sorted(texts):
        lines = [
            [where, pool_of_lines.setdefault(line, len(pool_of_lines)), many]
            for where, line, many in telling(text)
        ]
        entry = kernels.setdefault(kernel, {"part": part, "configs": {}})
        entry["configs"][config] = {"lines": lines, "of": len(text.splitlines()), "counts": ptx.counts(text)}
    stored = {
        "triton": version("triton"),
        "arch": f"sm_{ARCH}",
        "file": FILE.relative_to(catalog.ROOT).as_posix(),
        "file_sha256": hashlib.sha256(FILE.read_bytes()).hexdigest(),
        "lines": list(pool_of_lines),
        "kernels": kernels,
    }
    files.replace(STORED, json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
