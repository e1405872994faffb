"""What one program of a kernel does, line by line: its addresses, its mask, and what it loads and stores."""

from __future__ import annotations

from grader.course import catalog
from grader.site.figures import program_words as words
from grader.site.figures.drawing import Drawing
from grader.site.figures.figure import Figure
from grader.site.figures.program_cases import CASES, Case
from grader.site.figures.program_steps import of_program
from grader.site.figures.statements import PHASES, lines, statements
from grader.site.figures.trace import ITEM_BYTES, Buffer, trace


def compute() -> dict:
    """Return every case as the interpreter ran it."""
    traces = trace([case.launch for case in CASES])
    return {
        "phases": PHASES,
        "cases": [_case(case, programs) for case, programs in zip(CASES, traces, strict=True)],
    }


def _case(case: Case, programs: list) -> dict:
    launch = case.launch
    source = (catalog.ROOT / "solutions" / launch.file).read_text("utf-8")
    known = statements(source, launch.kernel)
    given = {name: value for name, value in launch.arguments.items() if isinstance(value, Buffer)}
    item_bytes = {name: ITEM_BYTES[value.dtype] for name, value in given.items()}
    layout = {"rows": case.rows, "cols": case.cols, "stride": case.stride, "block": case.block}
    buffers = [
        {"name": name, "values": [words.shown(one) for one in value.values],
         "item_bytes": item_bytes[name], **layout}
        for name, value in given.items()
    ]  # fmt: skip
    return {
        "title": case.title,
        "size": case.size,
        "file": f"solutions/{launch.file}",
        "code": [{"number": number, "text": text} for number, text in lines(source, launch.kernel)],
        "buffers": buffers,
        "block": case.block,
        "names": [str(at) for at in range(len(programs))],
        "is_owner_shown": True,
        "programs": [of_program(program, known, item_bytes) for program in programs],
    }


def draw(data: dict) -> str:
    """Draw the last program of the first case: its loads and stores, and the lanes that are masked off."""
    case = data["cases"][0]
    pid, program = len(case["programs"]) - 1, case["programs"][-1]
    size = f"{case['title']}, {case['size']}: program {pid} of {len(case['programs'])}"
    picture = Drawing(720, 356, FIGURE.title, size)
    picture.text(24, 36, size, "f-ink strong")
    left, cell, step = 96, 46, 50
    accesses = {one["buffer"]: one for part in program for one in part["accesses"]}
    for row, buffer in enumerate(case["buffers"]):
        y, access = 62 + 84 * row, accesses[buffer["name"]]
        verb = "reads" if access["kind"] == "load" else "writes"
        picture.text(left - 12, y + 28, buffer["name"].removesuffix("_ptr"), "f-ink strong end")
        for offset, value in enumerate(buffer["values"]):
            lane = access["offsets"].index(offset) if offset in access["offsets"] else None
            kinds = f"f-{access['kind']}-fill s-{access['kind']}" if lane is not None else "f-blank s-line"
            shown = value if lane is None else access["values"][lane]
            picture.rect(left + step * offset, y, cell, 44, kinds, 5)
            picture.text(left + step * offset + cell / 2, y + 20, shown, "f-ink mid")
            picture.text(left + step * offset + cell / 2, y + 37, str(offset), "f-quiet mid small")
        for lane, there in enumerate(access["mask"]):
            if not there:
                x = left + step * access["offsets"][lane]
                picture.rect(x, y, cell, 44, "none s-off dash", 5)
                picture.text(x + cell / 2, y + 20, "off", "f-off mid small")
                picture.text(x + cell / 2, y + 37, str(access["offsets"][lane]), "f-off mid small")
        first, last = (access["bytes"][i] for i in (0, sum(access["mask"]) - 1))
        where = f"{verb} bytes {first} to {last + access['item_bytes'] - 1} after {buffer['name']}"
        picture.text(left, y + 64, where, f"f-{access['kind']} small")
    picture.text(
        24,
        338,
        "Cells show a value above its element offset; dashed lanes lie past the end.",
        "f-quiet small",
    )
    return picture.svg()


FIGURE = Figure(
    title="One program's life",
    lead="A Triton kernel is written for one program, and every program runs it on a block of its own."
    " Choose a kernel, a size and a program, and follow it line by line.",
    reading=(
        "The lines are those of the course's solution, the addresses and values those of its run in Triton's"
        " interpreter: every load, store and mask was recorded as it happened.",
        "A cell of memory shows a value above its offset in elements; a byte address is the pointer plus the"
        " offset times the bytes of an element.",
        "Dashed red lanes are masked off: nothing is read or written there. Where a load names no `other`,"
        " such a lane holds no defined value, shown as ?.",
        "A GPU runs many programs at once, in no order that a kernel could count on, and the lanes of a block"
        " side by side.",
    ),
    compute=compute,
    draw=draw,
    height_px=1040,
    screenshot_step=3,
)
