"""`make survey`: ask and measure the GPU, write its record, README and plots; or only draw again."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import TimeRemainingColumn

from grader.course.catalog import CAPSTONE, ROOT, capstone_in
from grader.grading.progress import Follower
from grader.measure.survey.record import RECORD, SurveyRecord, read
from grader.measure.survey.rounds import QUICK, Plan
from grader.measure.survey.table import render, rewrite
from grader.measure.survey.theory import theory
from grader.system import gpu as nvml
from grader.system.exit_codes import FAULT, INTERRUPTED
from grader.system.files import replace
from grader.system.gpu import Gpu
from grader.system.gpu_lock import GpuLock

FOLDER = CAPSTONE / "hardware-survey"


def folder_of(source: Path) -> Path:
    """Where the survey of a tree lies."""
    return capstone_in(source) / FOLDER.name


def survey(source: Path, quick: bool, redraw_only: bool, command: str, console: Console) -> int:
    """The whole command; its exit code. Without a GPU nothing is written."""
    folder = folder_of(source)

    def say(words: str) -> None:
        console.print(words, highlight=False, markup=False)

    try:
        if not redraw_only:
            found, missing = nvml.find()
            if not found:
                say(f"survey needs an NVIDIA GPU with its driver: {missing}")
                return FAULT
            record = run(found, QUICK if quick else Plan(), command, console)
            folder.mkdir(parents=True, exist_ok=True)
            record.save(folder / RECORD)
        redraw(folder)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        say(f"survey: {error}")
        return FAULT
    say(render(read(folder)))
    say(f"written: {folder}")
    return 0


def run(found: Gpu, plan: Plan, command: str, console: Console) -> SurveyRecord:
    """Everything that is asked and measured, while no other grader uses the GPU."""
    # Here, not above: they need CUDA, or take seconds to import.
    import torch

    from grader.measure.survey.attributes import find
    from grader.measure.survey.device import CudaDevice
    from grader.measure.survey.measure import measure

    if not torch.cuda.is_available():
        raise RuntimeError("torch cannot use the GPU that NVML finds: `make doctor` says why")
    attributes = find(found)
    follower = Follower(console, TimeRemainingColumn())
    try:
        with GpuLock(found.uuid_hash):
            measured = measure(CudaDevice(attributes), plan, follower)
    finally:
        follower.end()
    return SurveyRecord.begin(
        command[:300],  # what the record has room for: a survey is not lost for a long path
        found,
        torch.version.cuda,
        quick=plan == QUICK,
        attributes=attributes,
        measured=measured,
        theory=theory(attributes),
    )


def redraw(folder: Path) -> None:
    """README and plots from the records that lie there; ValueError, in words for a student, for a bad one."""
    record = read(folder)
    write_readme(folder / "README.md", record)
    # Here, not above: only who draws needs matplotlib.
    from grader.measure.survey.plots import write

    write(folder)


def write_readme(path: Path, record: SurveyRecord) -> None:
    """Render the region of the README; the course's own is taken where there is none."""
    template = path if path.is_file() else ROOT / FOLDER / "README.md"
    text = rewrite(template.read_text("utf-8"), record)
    replace(path, text)
