"""Library call, compiler, Triton or CUDA: lines of code against measured speed, pattern by pattern."""

from __future__ import annotations

from grader.course.lines_of_code import files_of, lines_of_code, lines_with_helpers
from grader.site.figures import records
from grader.site.figures.drawing import Drawing
from grader.site.figures.figure import Figure, measured
from grader.site.figures.patterns import PATTERNS, Pattern, compiled
from grader.site.figures.records import Timed

LIBRARY, COMPILER = "Library call", "torch.compile"
WAYS = (LIBRARY, COMPILER, "Triton", "Gluon", "CUDA")
BY_COMPILER = "torch.compile"  # the name of the arm in bench records
CLOSE = 25  # "about as fast" is at most one part in 25 slower than the fastest


def compute() -> dict:
    """Return the options for each pattern and size, and the one with the least code that is fast enough."""
    return {
        "ways": list(WAYS),
        "close": CLOSE,
        "patterns": [_pattern(one) for one in PATTERNS],
        "gpus": sorted({one.gpu for one in records.bench()}),
    }


def _pattern(pattern: Pattern) -> dict:
    found = [one for one in (*records.bench(), *records.logged()) if one.op in pattern.ops]
    if not found:
        raise ValueError(f"{pattern.title}: no record has {' or '.join(pattern.ops)}")
    sizes = sorted({(one.operations, one.size, one.words) for one in found})
    made = [_size(pattern, words, [one for one in found if one.size == size]) for _, size, words in sizes]
    ever = {option["way"] for one in made for option in one["options"]}
    for one in made:
        there = {option["way"] for option in one["options"]}
        one["missing"] = [
            {"way": way, "words": "not measured at this size" if way in ever else "not measured"}
            for way in WAYS
            if way not in there
        ]

    def worth(at: int) -> tuple[int, int, int]:
        """Rank sizes by the number of measurements, then by closeness to the middle size."""
        options = made[at]["options"]
        return len({one["way"] for one in options}), len(options), -abs(at - len(made) // 2)

    first = max(range(len(made)), key=worth)
    return {"title": pattern.title, "limit": pattern.limit, "sizes": made, "first": first}


def _size(pattern: Pattern, words: str, found: list[Timed]) -> dict:
    """Return the options measured at one size, the least code first."""
    options = [_by_name(LIBRARY, pattern.call, max(found, key=lambda one: one.date))]
    by_file: dict = {}
    for one in found:
        if one.ratio and (one.file or one.arm == BY_COMPILER):
            by_file.setdefault(one.file, []).append(one)
    # The newest run of each file, and its faster layout.
    newest = {file: max(ones, key=lambda one: (one.date, one.ratio)) for file, ones in by_file.items()}
    if None in newest:
        options.append(_by_name(COMPILER, compiled(pattern), newest.pop(None)))
    options += [_kernel(one) for one in newest.values()]
    options.sort(key=lambda one: (one["lines"], WAYS.index(one["way"]), one["name"]))
    fastest = max(one["speed"]["value"] for one in options)
    close = [at for at, one in enumerate(options) if one["speed"]["value"] * CLOSE >= fastest * (CLOSE - 1)]
    return {
        "words": words,
        "options": options,
        "pick": min(close),
        "fastest": max(range(len(options)), key=lambda at: options[at]["speed"]["value"]),
    }


def _by_name(way: str, code: str, one: Timed) -> dict:
    """Return an option without an own kernel; the fastest library call is the baseline of all others."""
    return {
        "way": way,
        "name": way,
        "lines": lines_of_code(code),
        "code": code,
        "files": [],
        "speed": measured(1.0 if way == LIBRARY else one.ratio, "x", one.source),
    }


def _kernel(one: Timed) -> dict:
    return {
        "way": records.kind(one.file),
        "name": one.file.name,
        "lines": lines_with_helpers(one.file),
        "code": "",
        "files": [path.relative_to(records.SOLUTIONS).as_posix() for path in files_of(one.file)],
        "speed": measured(one.ratio, "x", one.source),
    }


def best(size: dict, way: str) -> dict | None:
    """Return the fastest option of one way, or None if none was measured."""
    return max(
        (one for one in size["options"] if one["way"] == way),
        key=lambda one: one["speed"]["value"],
        default=None,
    )


def draw(data: dict) -> str:
    """Draw one row for each pattern at its first size: speed and lines of the fastest option of each way."""
    high = 34
    picture = Drawing(
        960, 76 + high * len(data["patterns"]) + 30, FIGURE.title,
        "A table: for each pattern the speed of each way against the library's, and its lines of code.",
    )  # fmt: skip
    xs = [250 + 140 * at for at in range(len(data["ways"]))]
    picture.text(16, 30, FIGURE.title, "f-ink strong")
    for x, way in zip(xs, data["ways"], strict=True):
        picture.text(x + 66, 58, way, "f-quiet small mid")
    for at, pattern in enumerate(data["patterns"]):
        y = 68 + high * at
        size = pattern["sizes"][pattern["first"]]
        picture.text(16, y + 20, pattern["title"], "f-ink")
        for x, way in zip(xs, data["ways"], strict=True):
            one = best(size, way)
            picked = one is not None and one is size["options"][size["pick"]]
            picture.rect(x, y, 132, high - 6, "f-load-fill" if picked else "f-panel", 6)
            if one is None:
                picture.text(x + 66, y + 19, "not measured", "f-quiet small mid")
                continue
            lines = f"{one['lines']} line{'s' if one['lines'] > 1 else ''}"
            picture.text(x + 66, y + 19, f"{one['speed']['value']:.2f}x, {lines}", "f-ink small mid")
    words = (
        "Speed against the fastest library call of the same run; marked: the least code that is fast enough."
    )
    picture.text(16, 68 + high * len(data["patterns"]) + 20, words, "f-quiet small")
    return picture.svg()


FIGURE = Figure(
    title="Choose your stack",
    lead="For a pattern and a size: how much code each way takes, and how fast it was. Step through the "
    "ways, or point at a mark. The ringed one is the least code that is about as fast as the fastest.",
    reading=(
        "Right: more code. Up: faster than the fastest library call of the same run, which is the line at 1. "
        "Both axes are logarithmic. Below the dashed steps lies what less code reaches as well.",
        "Lines are counted as for the labs' limit: no blank lines, comments or docstrings. A kernel counts "
        "with the files that it takes from beside it; one that does more than this pattern counts in full.",
        "About as fast: no more than one part in twenty-five slower than the fastest way at this size.",
        "Gluon is Triton's lower layer, and asks for as much knowledge of the hardware as CUDA. Where "
        "nothing was measured, the course has no such kernel, or no stored run of it.",
        "Lines are not all of the effort: a library call is tested by others and runs on every GPU, and a "
        "kernel that was tuned for one GPU has to be tuned again for the next.",
    ),
    compute=compute,
    draw=draw,
    height_px=1100,
    screenshot_step=2,
)
