"""Which specimens `make test` runs: those of a committed list, which has one of every kind."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from grader.course.spec import Reason, Verdict
from grader.course.specimens import Specimen, find
from grader.tests.helpers.course import ROOT

LIST = Path(__file__).with_name("everyday_specimens.txt")
WRONG = find(
    "solutions/lab*/wrong/*.py", *(f"solutions/gpu-programming/*/wrong/*.{end}" for end in ("cu", "py"))
)
VARIANTS = find("solutions/lab*/variants/*.py", "solutions/gpu-programming/*/variants/*.py")
CORPORA = {
    # A variant that is only measured, such as one of PyTorch's calls, is refused as an answer.
    "student bugs": WRONG + [one for one in VARIANTS if one.screened != ("PASS",)],
    "honest variants": [one for one in VARIANTS if one.screened == ("PASS",)],
    "cheats": find("grader/tests/cheats/*"),
    "faults": find("grader/tests/faults/*"),
}


def on(where: str, specimens: Iterable[Specimen]) -> list[Specimen]:
    """Those of a corpus that the CPU or the GPU shows; it must have some."""
    kept = [specimen for specimen in specimens if specimen.where in ("", where)]
    assert kept
    return kept


def path_of(specimen: Specimen) -> str:
    """Where it stands in the repository: what the list has."""
    return specimen.path.relative_to(ROOT).as_posix()


def listed() -> list[str]:
    """The paths that the list has, without its comments."""
    lines = LIST.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def unknown_labels(specimen: Specimen) -> list[str]:
    """The expected labels of a specimen that no outcome can have: an unknown verdict or reason."""
    labels = dict.fromkeys((*specimen.screened, *specimen.unscreened))
    return [label for label in labels if not _is_known(*label.split("/"))]


def _is_known(verdict: str, reason: str = Reason.NONE.value) -> bool:
    return verdict in {one.value for one in Verdict} and reason in {one.value for one in Reason}


def kinds(specimen: Specimen) -> set[str]:
    """What a specimen is an example of: its verdicts, exercise, folder, and the row of its trick or fault.

    Rows of student bugs are left out: each has its own.
    """
    found = {f"kind {specimen.kind}", f"folder {path_of(specimen).rpartition('/')[0]}"}
    found |= {f"verdict {label}" for label in specimen.screened}
    if "variants" not in specimen.path.parts:  # right answers of every exercise are what `make grade` runs
        found |= {f"exercise {function}" for function in specimen.functions}
    if specimen.unscreened != specimen.screened:
        found |= {f"unscreened verdict {label}" for label in specimen.unscreened}
    if specimen.row and not specimen.row.startswith("S"):
        found.add(f"row {specimen.row}")
    return found


def without_example(
    corpora: Mapping[str, Sequence[Specimen]], paths: Iterable[str]
) -> dict[tuple[str, str], str]:
    """Each kind in a corpus of which no path is an example, and a specimen that is one."""
    chosen, missing = set(paths), {}
    for corpus, specimens in corpora.items():
        shown = set().union(*(kinds(one) for one in specimens if path_of(one) in chosen))
        for specimen in specimens:
            for kind in kinds(specimen) - shown:
                missing.setdefault((corpus, kind), path_of(specimen))
    return missing
