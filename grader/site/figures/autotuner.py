"""The measured configs of lab 3's matmul, the autotuner's choice, and the PTX of each config."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from grader.course import catalog
from grader.measure.bench.tuning import Compiled, KernelTuning, Tuned, TuningRecord
from grader.site.figures import ptx_lines
from grader.site.figures.drawing import Drawing
from grader.site.figures.excerpts import definition, excerpt
from grader.site.figures.figure import Figure
from grader.site.figures.records import SOLUTIONS

RECORD = SOLUTIONS / "results" / "h200-tuning.json"
CUDA = SOLUTIONS / "gpu-programming" / "cuda-kernels" / "matmul" / "11_tma_store.cu"
LIST_OF = {
    "matmul_kernel": "CONFIGS",
    "described_kernel": "DESCRIBED",
}  # the list of configs of each kernel
HOW = {"matmul_kernel": "pointers and masks", "described_kernel": "tensor descriptors, persistent"}
CUDA_PARTS = (
    ("constexpr int BLOCK_M", "constexpr int STAGES"),
    ("barrier_wait(empty", "tma_load(b_ring"),
    ("barrier_wait(full", "previous = ring.stage"),
    ("store_matrices(box", "tma_store_commit"),
)
WARPS_OF_A_GROUP = 4


def compute(path: Path = RECORD) -> dict:
    """Return the configs by kernel with their rates by size; ValueError if record, source or PTX differ."""
    record = TuningRecord.read(path)
    stored = json.loads(ptx_lines.STORED.read_text("utf-8"))
    digest = hashlib.sha256(ptx_lines.FILE.read_bytes()).hexdigest()
    if stored["file_sha256"] != digest:
        raise ValueError("ptx-matmul.json is of another source: run python -m grader.site.figures.ptx_lines")
    kernels = [_kernel(one, path, stored) for one in record.kernels if one.sizes]
    if not kernels:
        raise ValueError(f"{path.name}: no kernel was measured")
    kernels.sort(key=lambda one: list(LIST_OF).index(one["name"]))
    return {
        "where": f"{record.machine.words}, {record.date[:10]}",
        "ptx": {key: stored[key] for key in ("triton", "arch", "lines")},
        "ran_with": record.machine.triton,
        "kernels": kernels,
        "cuda": _cuda(),
    }


def _kernel(one: KernelTuning, path: Path, stored: dict) -> dict:
    source = [*definition(ptx_lines.FILE, LIST_OF[one.kernel]), *definition(ptx_lines.FILE, one.kernel)]
    there = path.is_relative_to(catalog.ROOT)  # the record of a test is elsewhere
    return {
        "name": one.kernel,
        "how": HOW[one.kernel],
        "source": path.relative_to(catalog.ROOT).as_posix() if there else path.name,
        "configs": [
            _config(config, source, stored["kernels"][one.kernel]["configs"]) for config in one.configs
        ],
        "sizes": [_size(size, one.configs) for size in one.sizes],
        "triton": source,
        "file": ptx_lines.FILE.relative_to(SOLUTIONS).as_posix(),
    }


def _config(config: Compiled, source: list[dict], texts: dict) -> dict:
    tile = [config.constants[key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K")]
    written = re.compile(rf"_config\({', '.join(map(str, [*tile, config.num_stages, config.num_warps]))}\b")
    listed = [line["number"] for line in source if written.search(line["text"])]
    text = texts.get(config.name, {"lines": [], "of": 0, "counts": {}})
    return {
        "name": config.name,
        "tile": tile,
        "warps": config.num_warps,
        "stages": config.num_stages,
        "own": config.own,
        "listed": listed,
        "error": config.error,
        "registers": config.registers,
        "spilled": config.spill_bytes,
        "shared": config.shared_bytes,
        "instruction": config.instruction,
        "ptx": text["lines"],
        "of": text["of"],
        "compiled": text["counts"],
        "ran": config.ptx,
    }


def _size(size: Tuned, configs: list[Compiled]) -> dict:
    arms = size.times.arms
    library = size.times.baseline
    return {
        "side": size.times.size["m"],
        "picked": size.picked,
        "tried": size.tried,
        "library": {"name": library, **_rate(arms[library])},
        "rates": {one.name: _rate(arms[one.name]) for one in configs if one.name in arms},
    }


def _rate(arm) -> dict:
    if arm.rate is None:
        return {"why": arm.reason or arm.status}
    return {
        "value": arm.rate,
        "unit": "TFLOP/s",
        "us": {"value": arm.median_us, "unit": "us"},
        "spread": [{"value": us, "unit": "us"} for us in (min(arm.all_rounds_us), max(arm.all_rounds_us))],
        "of_library": {"value": arm.ratio, "unit": "x"},
    }


def _cuda() -> dict:
    parts = [excerpt(CUDA, *ends) for ends in CUDA_PARTS]
    constants = {}
    for line in parts[0]:
        for name, value in re.findall(r"\b(BLOCK_M|BLOCK_N|BLOCK_K|CONSUMERS|STAGES) = (\d+)", line["text"]):
            constants[name] = {"value": int(value), "line": line["number"]}
    for line in parts[2]:
        line["topic"] = line["topic"] or ("compute" if "wgmma_" in line["text"] else "")
    return {
        "file": CUDA.relative_to(SOLUTIONS).as_posix(),
        "parts": parts,
        "constants": constants,
        "warps": WARPS_OF_A_GROUP * constants["CONSUMERS"]["value"],
    }


def grid(kernel: dict) -> tuple[list[tuple], list[tuple]]:
    """Return the rows and the columns of the map: tiles, and pairs of warps and stages."""
    rows = sorted({tuple(one["tile"]) for one in kernel["configs"]})
    return rows, sorted({(one["warps"], one["stages"]) for one in kernel["configs"]})


def draw(data: dict) -> str:
    """Draw the map of the first kernel at 4096, or at the largest size below."""
    kernel = data["kernels"][0]
    size = max(kernel["sizes"], key=lambda one: (one["side"] <= 4096, one["side"]))
    rows, columns = grid(kernel)
    high, wide = 34, 130
    words = f"{kernel['name']} at {size['side']}: TFLOP/s by tile, warps, stages; the choice is framed."
    picture = Drawing(190 + wide * len(columns), 96 + high * len(rows) + 40, FIGURE.title, words)
    picture.text(16, 30, f"{kernel['name']}, bf16, sides of {size['side']}", "f-ink strong")
    for at, (warps, stages) in enumerate(columns):
        picture.text(170 + wide * (at + 0.5), 66, f"{warps} warps, {stages} stages", "f-quiet small mid")
    most = max(one["value"] for one in size["rates"].values() if "value" in one)
    for at, tile in enumerate(rows):
        picture.text(160, 78 + high * at + 21, "x".join(map(str, tile)), "f-ink end")
    for one in kernel["configs"]:
        x = 170 + wide * columns.index((one["warps"], one["stages"]))
        y = 78 + high * rows.index(tuple(one["tile"]))
        rate = size["rates"].get(one["name"], {}).get("value")
        near = rate is not None and rate > 0.9 * most
        kinds = "f-load-fill" if near else "f-panel" if rate is not None else "f-blank"
        picture.rect(x + 2, y + 2, wide - 4, high - 4, kinds, 5)
        if one["name"] == size["picked"]:
            picture.rect(x + 2, y + 2, wide - 4, high - 4, "none s-ink", 5)
        shown = "does not fit" if rate is None else f"{rate:.0f}" + (" spills" if one["spilled"] else "")
        picture.text(x + wide / 2, y + 22, shown, "f-ink mid" if rate is not None else "f-quiet small mid")
    library = size["library"]
    words = f"TFLOP/s; {library['name']} in the same rounds: {library['value']:.0f} TFLOP/s."
    picture.text(16, 96 + high * len(rows) + 8, words, "f-quiet small")
    picture.text(16, 96 + high * len(rows) + 26, f"{data['where']}.", "f-quiet small")
    return picture.svg()


FIGURE = Figure(
    title="Autotuner: one kernel, many configurations",
    lead="Each cell is one configuration of lab 3's matmul as it was measured. Choose one: below stand the "
    "Triton source that all of them share, CUDA that commits to one of them, and the PTX that it gave.",
    reading=(
        "Rows are tiles, BLOCK_M x BLOCK_N x BLOCK_K; columns are warps and pipeline stages. Stronger colour "
        "is faster. A dot is for what the file lists; the frame is what the autotuner took of those that "
        "its pruning leaves for this size. The others were tried for this figure.",
        "Steps begin with the autotuner's choice and go on from the fastest to the slowest.",
        "Times, registers, spilled bytes and the autotuner's choice are those of the stored run. The PTX was "
        "compiled without a GPU; where its counts differ from those of the run, it says so.",
        "The PTX is shortened to the lines that move, multiply or wait; registers lose their numbers, and "
        "equal neighbours are counted. Marked is what the autotuner's choice has not, struck what it had.",
        "The CUDA kernel has its tile, stages and warps as constants; where they are not those of the chosen "
        "configuration, they are marked. Four more of its warps do nothing but load.",
    ),
    compute=compute,
    draw=draw,
    height_px=1420,
    screenshot_step=1,
)
