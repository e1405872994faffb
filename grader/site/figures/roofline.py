"""Roofline of all kernels with a stored time, below the roofs that the survey measured."""

from __future__ import annotations

import math

from grader.course import catalog
from grader.measure.survey.record import SurveyRecord
from grader.site.figures import records
from grader.site.figures.drawing import Drawing
from grader.site.figures.figure import Figure, measured
from grader.site.figures.records import SURVEY, Timed

HALF, SINGLE = "bf16", "fp32"


def compute() -> dict:
    """Return the roofs, the points of each kernel by size, and the labs without a record."""
    survey = SurveyRecord.read(SURVEY)
    gpu = survey.machine.gpu.name
    groups: dict[tuple, list[Timed]] = {}
    for one in records.kernels():
        if one.gpu == gpu:  # another GPU has other roofs
            groups.setdefault((records.lab(one.file), one.op, one.file), []).append(one)
    kernels = [_kernel(*key, found) for key, found in sorted(groups.items())]
    labs = [f"lab {entry.number}" for entry in catalog.find()] + ["capstone"]
    there = {one["lab"] for one in kernels}
    return {
        "gpu": gpu,
        "date": survey.date[:10],
        "roofs": [_roof(survey, HALF), _roof(survey, SINGLE)],
        "theory": {
            "bandwidth": measured(survey.theory.dram_bytes_per_s / 1e12, "TB/s", SURVEY),
            "peak": measured(survey.theory.flops_per_s[HALF] / 1e12, "TFLOP/s", SURVEY),
        },
        "labs": [lab for lab in labs if lab in there],
        "without": [lab for lab in labs if lab not in there],
        "kernels": kernels,
    }


def _roof(survey: SurveyRecord, dtype: str) -> dict:
    bandwidth = survey.measured.dram_read
    return {
        "dtype": dtype,
        "ridge": survey.measured.ridges[dtype],
        "bandwidth": measured(bandwidth / 1e12, "TB/s", SURVEY),
        "peak": measured(survey.measured.ridges[dtype] * bandwidth / 1e12, "TFLOP/s", SURVEY),
    }


def _kernel(lab: str, op: str, file, found: list[Timed]) -> dict:
    return {
        "lab": lab,
        "name": op.replace("_", " "),
        "file": file.relative_to(records.SOLUTIONS).as_posix(),
        "stem": file.name,
        "kind": records.kind(file),
        "dtype": found[0].dtype,
        "points": [_point(one) for one in sorted(found, key=lambda one: (one.operations, one.size))],
    }


def _point(one: Timed) -> dict:
    source = one.source
    return {
        "size": one.words,
        "intensity": one.operations / one.bytes_moved,
        "by_memory": one.unit == "TB/s",
        "time": measured(one.us, "us", source),
        "flops": measured(one.operations / one.us / 1e6, "TFLOP/s", source),
        "bytes": measured(one.bytes_moved / one.us / 1e6, "TB/s", source),
        "share": measured(one.percent, "%", source),
        "date": one.date[:10],
    }


def scales(data: dict) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the powers of ten around all points: FLOP per byte, and TFLOP/s."""
    points = [point for kernel in data["kernels"] for point in kernel["points"]]
    axes = ([p["intensity"] for p in points], [p["flops"]["value"] for p in points])
    return tuple((math.floor(math.log10(min(v))), math.ceil(math.log10(max(v)))) for v in axes)


MARKS = {"Triton": "f-accent", "Gluon": "f-store", "CUDA": "f-compute"}


def draw(data: dict) -> str:
    """Draw all points, coloured by the language of the kernel."""
    many, marks = len(data["kernels"]), sum(len(kernel["points"]) for kernel in data["kernels"])
    words = (
        f"{marks} marks of {many} kernels on a {data['gpu']}, rate against FLOP per byte, below the roofs."
    )
    picture = Drawing(880, 500, FIGURE.title, words)
    (left, right), (low, high) = scales(data)

    def place(intensity: float, rate: float) -> tuple[float, float]:
        x = 70 + (math.log10(intensity) - left) / (right - left) * 780
        return x, 440 - (math.log10(rate) - low) / (high - low) * 390

    picture.text(70, 26, FIGURE.title, "f-ink strong")
    for power in range(left, right + 1):
        x, _ = place(10**power, 10**low)
        picture.line(x, 50, x, 440, "s-line")
        picture.text(x, 460, f"{10**power:g}", "f-quiet small mid")
    for power in range(low, high + 1):
        _, y = place(10**left, 10**power)
        picture.line(70, y, 850, y, "s-line")
        picture.text(62, y + 4, f"{10**power:g}", "f-quiet small end")
    picture.text(460, 484, "FLOP per byte of DRAM", "f-quiet small mid")
    picture.text(14, 40, "TFLOP/s", "f-quiet small")
    for roof in data["roofs"]:
        rate, bandwidth = roof["peak"]["value"], roof["bandwidth"]["value"]
        xs = [max(10**left, 10**low / bandwidth), rate / bandwidth, 10**right]
        spots = [place(x, min(rate, bandwidth * x)) for x in xs]
        picture.polyline(spots, "none s-ink")
        picture.text(
            spots[1][0] - 10, spots[1][1] + 4, f"{roof['dtype']}: {rate:.0f} TFLOP/s", "f-ink small end"
        )
    slope = data["roofs"][0]["bandwidth"]["value"]
    x, y = place(1, slope)
    picture.text(x - 12, y - 10, f"DRAM read: {slope:.2f} TB/s", "f-ink small end")
    for kernel in data["kernels"]:
        for point in kernel["points"]:
            picture.circle(*place(point["intensity"], point["flops"]["value"]), 4, MARKS[kernel["kind"]])
    for at, (kind, colour) in enumerate(MARKS.items()):
        picture.circle(640 + 75 * at, 22, 5, colour)
        picture.text(650 + 75 * at, 26, kind, "f-ink small")
    return picture.svg()


FIGURE = Figure(
    title="Roofline: every kernel of the course",
    lead="Choose a lab or a kernel, or point at a mark. How far below the roof a mark lies is what is left "
    "to win; whether the slope or the flat part is above it says what to work on: bytes or arithmetic.",
    reading=(
        "Right: more arithmetic for each byte of DRAM. Up: faster. Both axes are logarithmic.",
        "The slope is DRAM bandwidth, the flat parts are the matmul rates of tensor cores (bf16) and of "
        "plain fp32, as the hardware survey measured them. The dashed roof is what clocks and units allow.",
        "FLOP per byte counts each input and each result once, and of row kernels the operations of the "
        "plain formula. A kernel that reads twice lies lower for it.",
        "The share is of the GPU's peak rates: of peak bandwidth where memory decides, else of peak "
        "arithmetic. A mark above a solid roof was faster than the survey's own run.",
        "Each mark is the newest stored run of a kernel at a size, and of two layouts the faster one. The "
        "record it comes from stands below. Steps of the kernel log are marks, too.",
    ),
    compute=compute,
    draw=draw,
    height_px=980,
    screenshot_step=20,
)
