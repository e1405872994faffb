"""`make survey`: measure the GPU and write its record, README and plots, or only draw them again."""

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
    """Return the folder of the survey in a tree laid out like labs/."""
    return capstone_in(source) / FOLDER.name


def survey(source: Path, quick: bool, redraw_only: bool, command: str, console: Console) -> int:
    """Run the command and return its exit code; without a GPU nothing is written."""
    folder = folder_of(source)

    def say(words: str) -> None:
        console.print(words, highlight=False, markup=False)

    try:
        if not redraw_only:
            found, missing = nvml.find()
            if not found:
                say(f"`make survey` needs an NVIDIA GPU with its driver: {missing}")
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
    """Query and measure the GPU while no other grader uses it.

    Raises RuntimeError if torch cannot use the GPU or a result is wrong.
    """
    # Imported here because they need CUDA or take seconds to import.
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
        command[:300],  # the limit of the record: a survey is not lost because of a long path
        found,
        torch.version.cuda,
        quick=plan == QUICK,
        attributes=attributes,
        measured=measured,
        theory=theory(attributes),
    )


def redraw(folder: Path) -> None:
    """Write README and plots from a folder's records; ValueError, in words for a student, if one is bad."""
    record = read(folder)
    write_readme(folder / "README.md", record)
    # Imported here because only drawing needs matplotlib.
    from grader.measure.survey.plots import write

    write(folder)


def write_readme(path: Path, record: SurveyRecord) -> None:
    """Render the region of the README; if there is no README, start from the course's."""
    template = path if path.is_file() else ROOT / FOLDER / "README.md"
    text = rewrite(template.read_text("utf-8"), record)
    replace(path, text)
