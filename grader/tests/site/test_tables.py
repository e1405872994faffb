"""Figures in READMEs come from records, and no record carries what it should not."""

import json
import re

import matplotlib
import pytest

from grader.classroom.grading.cost import CostRecord
from grader.course import catalog
from grader.measure.bench import plots as bench_plots
from grader.measure.bench.record import BenchRecord
from grader.measure.bench.tuning import TuningRecord
from grader.measure.kernel_log.profiles import ProfileRecord
from grader.measure.student_loop import StudentLoop
from grader.measure.toolchains import Toolchains
from grader.report import markdown
from grader.results.models import Results
from grader.site import coverage, graded_run
from grader.site.figures import autotuner, ptx_lines
from grader.site.notebooks.lessons import LESSONS, Lessons
from grader.site.tables import LABEL, PAGES, bench_records, load, rewrite

RECORDS = sorted((catalog.ROOT / "solutions" / "results").glob("*.json"))


def records_in(text):
    """The records that the regions of a page are rendered from; an empty word for one that needs none."""
    return [one.label.partition(" ")[2] for one in markdown.regions(text, LABEL)[0]]


@pytest.mark.parametrize("page", PAGES)
def test_page_says_what_its_records_say(page):
    text = (catalog.ROOT / page).read_text("utf-8")
    assert records_in(text), "no region to check"
    assert rewrite(text, catalog.ROOT) == text


def test_plots_are_those_of_the_records_and_all_are_shown(tmp_path):
    folder = catalog.ROOT / "solutions" / "results"
    records = bench_records(folder)
    drawn = bench_plots.write(records, tmp_path, kinds=(".svg",))
    kept = sorted((folder / "plots").iterdir())
    assert {path.name for path in drawn} == {path.name for path in kept}
    assert len(drawn) > len(records)
    text = (catalog.ROOT / "solutions" / "README.md").read_text("utf-8")
    assert set(re.findall(r"\((results/plots/\S+)\)", text)) == {
        f"results/plots/{path.name}" for path in kept
    }
    creator = f"Matplotlib v{matplotlib.__version__}"
    if creator not in kept[0].read_text("utf-8"):
        pytest.skip(f"the plots are of another release than {creator}, whose bytes may differ")
    assert [path.read_bytes() for path in sorted(drawn)] == [path.read_bytes() for path in kept]


def test_every_record_is_shown_somewhere():
    shown = {record for page in PAGES for record in records_in((catalog.ROOT / page).read_text("utf-8"))}
    shown = {name for name in shown if name and name.endswith(".json")}  # other regions come from the code
    sources = "".join(path.read_text("utf-8") for path in sorted((catalog.ROOT / "notebooks").glob("*.py")))
    shown |= {str(LESSONS)} if "lesson_record(" in sources else set()
    shown |= {str(path.relative_to(catalog.ROOT)) for path in (autotuner.RECORD, ptx_lines.STORED)}
    shown |= {str(graded_run.RECORD)}  # a picture
    assert RECORDS
    assert {str(path.relative_to(catalog.ROOT)) for path in RECORDS} == shown


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_record_fits_the_model_and_names_no_path_of_a_machine(path):
    if "corpora" in path.name:
        assert all(one["of"] > 0 for one in json.loads(path.read_text("utf-8"))["corpora"].values())
    elif "blind" in path.name:
        for one in json.loads(path.read_text("utf-8"))["sets"]:
            folder = catalog.ROOT / f"grader/tests/blind_mistakes_{one['set']}"
            files = {file.name for file in folder.iterdir()} - {"INDEX.md"}
            assert {*one["grades"], *one["right"]} == files
            assert set(one["grades"].values()) <= {*"ABCDEG"}
    elif "recovery" in path.name:
        assert json.loads(path.read_text("utf-8"))["recovery"]
    elif "lessons" in path.name:
        assert Lessons.model_validate_json(path.read_text("utf-8")).entries
    elif path == catalog.ROOT / coverage.RECORD:
        assert coverage.CoverageRecord.model_validate_json(path.read_text("utf-8")).rooms
    elif path == autotuner.RECORD:
        assert TuningRecord.model_validate_json(path.read_text("utf-8")).kernels
    elif path == ptx_lines.STORED:
        assert json.loads(path.read_text("utf-8"))["kernels"]
    elif "bench" in path.name:
        record = BenchRecord.model_validate_json(path.read_text("utf-8"))
        assert record.ops
        assert all(one.sizes for one in record.ops)
    elif "class" in path.name:
        assert all(
            run.gradings and run.machines for run in CostRecord.model_validate_json(path.read_text()).runs
        )
    elif "student-loop" in path.name:
        assert StudentLoop.model_validate_json(path.read_bytes()).steps
    elif "toolchains" in path.name:
        assert Toolchains.model_validate_json(path.read_bytes()).toolchains
    elif "profile" in path.name:
        profiles = ProfileRecord.model_validate_json(path.read_text("utf-8"))
        assert profiles.calls
        assert all(one.kernels for one in profiles.calls)
    else:
        for run in load(path):
            assert isinstance(run, Results)
            assert run.labs
    assert re.findall(r'[" ](/(?:home|root|tmp|work|usr)/[^" ]*)', path.read_text("utf-8")) == []


def test_a_changed_record_changes_the_page(tmp_path):
    source = catalog.ROOT / "solutions" / "results" / "h200.json"
    record = json.loads(source.read_text("utf-8"))
    items = [item for lab in record["labs"] for one in lab["exercises"] for item in one["items"]]
    for item in items:
        item["points"] = 12.5 if item is items[0] else 0.0
    (tmp_path / "record.json").write_text(json.dumps(record), "utf-8")
    page = "<!-- BEGIN report record.json -->\nold\n<!-- END -->"
    assert "12.5 / 400" in rewrite(page, tmp_path)
    assert "old" not in rewrite(page, tmp_path)


def test_labs_are_listed_with_links_from_the_page_that_shows_them():
    for page in ("README.md", "labs/README.md"):
        path = catalog.ROOT / page
        rows = rewrite(f"<!-- BEGIN labs {page} -->\n<!-- END -->", catalog.ROOT).splitlines()[3:-1]
        assert len(rows) == len(catalog.find())
        for row, entry in zip(rows, catalog.find(), strict=True):
            (link,) = re.findall(r"\]\((\S+)\)", row)
            assert (path.parent / link).resolve() == entry.folder / "README.md"
            assert f" {entry.lab.points:g} |" in row
            assert entry.lab.teaches
            assert f"| {entry.lab.teaches} |" in row
