"""What the capstone hands in beside kernels is graded by its records, which are synthetic here."""

import json
import re
import shutil

import pytest

from grader.course import catalog
from grader.course.items import DOCUMENT, graded_items
from grader.course.spec import Document, Verdict
from grader.judge.run import Run
from grader.measure.kernel_log.record import Record
from grader.tests.helpers.course import ROOT, SEED
from grader.tests.measure.capstone_tree import complete_capstone
from grader.tests.measure.kernel_log_fakes import TILED, Bench, step

(ENTRY,) = (entry for entry in catalog.capstone() if entry.folder.name == "gpu-programming")
CUDA = ROOT / "gpu-programming" / "cuda-kernels"


def outcomes(tree, tier="gpu"):
    """Outcomes of all checks by name, in a tree laid out like solutions/."""
    run = Run(tree, tier, SEED, None)
    try:
        return {item.name: run.answer(item) for item in graded_items(ENTRY)}
    finally:
        run.close()


def verdicts(tree, tier="gpu"):
    return {name: outcome.verdict for name, outcome in outcomes(tree, tier).items()}


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    return complete_capstone(tmp_path_factory.mktemp("complete"))


@pytest.fixture
def tree(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "tree")


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_everything_handed_in_gets_every_point_with_or_without_a_gpu(tree):
    for tier in ("gpu", "cpu"):
        found = outcomes(tree, tier)
        assert len(found) == 6
        for name, outcome in found.items():
            assert (outcome.verdict, outcome.share) == (Verdict.PASS, 1.0), (name, outcome.where)


def test_what_is_not_there_yet_is_not_started_and_open_where_it_could_not_be_made(tmp_path):
    assert set(verdicts(tmp_path).values()) == {Verdict.NOT_STARTED}
    for outcome in outcomes(tmp_path, "cpu").values():
        assert outcome.verdict is Verdict.NOT_GRADED
        assert "on a machine with a GPU" in outcome.where


def test_the_reference_hands_in_nothing():
    assert set(verdicts("reference").values()) == {Verdict.NOT_GRADED}


def test_a_survey_that_was_changed_is_wrong(tree):
    folder = tree / "gpu-programming" / "hardware-survey"
    edit(folder / "README.md", "| DRAM", "| dram")
    found = outcomes(tree)
    assert found["consistent"].verdict is Verdict.PASS
    assert found["shown as recorded"].verdict is Verdict.WRONG
    assert "README.md does not agree with survey.json" in found["shown as recorded"].where


@pytest.mark.parametrize("text", ["{}", "[", "\x00", '{"schema_version": NaN}', "[" * 10**5])
def test_a_survey_that_cannot_be_read_is_wrong_and_no_fault_of_the_grader(tree, text):
    (tree / "gpu-programming" / "hardware-survey" / "survey.json").write_text(text)
    found = outcomes(tree)
    for name in ("consistent", "shown as recorded"):
        assert found[name].verdict is Verdict.WRONG, found[name].where
        assert "survey.json" in found[name].where


def test_a_survey_whose_numbers_contradict_each_other_is_wrong(tree):
    path = tree / "gpu-programming" / "hardware-survey" / "survey.json"
    told = json.loads(path.read_text())
    told["measured"]["dram_read"] *= 1.5
    path.write_text(json.dumps(told))
    assert outcomes(tree)["consistent"].verdict is Verdict.WRONG


BROKEN_BENCHMARKS = {
    "changed file": (
        lambda folder: (folder / "reduction" / "05_deterministic.cu").write_text("another\n"),
        "reduction/05_deterministic.cu was changed since it was measured",
    ),
    "kernel that is a link": (
        lambda folder: linked(folder / "reduction" / "05_deterministic.cu"),
        "reduction/05_deterministic.cu was changed since it was measured",
    ),
    "missing plot": (
        lambda folder: (folder / "plots" / "vector_add.svg").unlink(),
        "vector_add.svg is missing",
    ),
    "plot of another record": (
        lambda folder: edit(folder / "bench.json", "2026-01-02", "2026-01-03"),
        "was drawn from another record",
    ),
    "wrong kernel": (lambda folder: edit(folder / "bench.json", '"ok"', '"wrong"'), "cuda_matmul was wrong"),
    "kernel left out": (
        lambda folder: edit(folder / "bench.json", "vector_add/02_vectorised.cu", "vector_add/01.cu"),
        "vector_add/02_vectorised.cu was not measured",
    ),
    "no GPU": (lambda folder: no_gpu(folder / "bench.json"), "names no GPU"),
    "no record": (lambda folder: (folder / "bench.json").write_text("{}"), "not a record of make bench"),
    "link": (lambda folder: linked(folder / "bench.json"), "is a link"),
}  # fmt: skip


def linked(path):
    path.symlink_to(path.rename(path.with_name("other.json")))


def no_gpu(path):
    told = json.loads(path.read_text())
    told["machine"]["gpu"] = None
    path.write_text(json.dumps(told))


@pytest.mark.parametrize(("spoil", "words"), BROKEN_BENCHMARKS.values(), ids=BROKEN_BENCHMARKS)
def test_benchmarks_that_are_not_those_of_the_files_are_wrong(tree, spoil, words):
    spoil(tree / "gpu-programming" / "cuda-kernels")
    found = outcomes(tree)
    assert found["CUDA as recorded"].verdict is Verdict.WRONG
    assert words in found["CUDA as recorded"].where
    assert found["Triton as recorded"].verdict is Verdict.PASS


def test_a_log_with_a_changed_number_loses_the_points_for_being_whole_alone(tree):
    edit(tree / "gpu-programming" / "KERNEL_LOG.md", "90.2", "80.2")
    found = verdicts(tree)
    assert (found["unbroken"], found["five steps"]) == (Verdict.WRONG, Verdict.PASS)


def test_a_log_whose_folder_is_a_link_is_wrong_and_no_fault_of_the_grader(tree):
    log = tree / "gpu-programming" / "kernel-log"
    log.symlink_to(log.rename(tree / "elsewhere"))
    found = outcomes(tree)
    for name in ("unbroken", "five steps"):
        assert found[name].verdict is Verdict.WRONG, found[name].where
        assert "kernel-log is a link" in found[name].where


def test_a_log_of_four_steps_is_too_short(tmp_path):
    capstone = tmp_path / "gpu-programming"
    (capstone / TILED).parent.mkdir(parents=True)
    bench = Bench(capstone)
    for number in range(4):
        (capstone / TILED).write_text("again\n" * number)
        step(capstone, bench, TILED, "one line more, no difference")
    found = outcomes(tmp_path)["five steps"]
    assert found.verdict is Verdict.WRONG
    assert "so far: cuda_matmul 4" in found.where


def test_a_document_needs_a_check():
    with pytest.raises(ValueError, match="no checks; a document needs at least one"):
        Document("survey", "survey.json", {})


def test_points_of_the_capstone_are_those_of_its_readme():
    readme = (ROOT / "gpu-programming" / "README.md").read_text("utf-8").splitlines()
    kernels = {e.folder.name: e.lab.points for e in catalog.capstone() if e.folder != ENTRY.folder}
    points = kernels | {document.name: document.points for document in ENTRY.lab.exercises}
    for name, most in points.items():
        assert [
            line for line in readme if line.startswith(f"| `{name}`") and line.endswith(f" {most:g} |")
        ], name
    assert f"| total | | {sum(points.values()):g} |" in readme


def test_nothing_of_a_document_is_asked_of_a_worker(tree, monkeypatch):
    def refuse(*_):
        raise AssertionError("a session of workers was started")

    monkeypatch.setattr("grader.judge.run.Session.of_run", refuse)
    items = list(graded_items(ENTRY))
    assert {item.kind for item in items} == {DOCUMENT}
    run = Run(tree, "cpu", SEED, None)
    with pytest.raises(AssertionError, match="a session of workers was started"):
        assert run.session
    run.warm(items)
    assert {run.answer(item).verdict for item in items} == {Verdict.PASS}
    run.close()


def test_the_worked_example_is_whole_and_was_measured():
    # Real records, of an H200: what the commands write, their own checks find nothing wrong with.
    assert set(verdicts(ROOT / "solutions").values()) == {Verdict.PASS}
    folders = sorted((ROOT / "solutions" / "gpu-programming" / "kernel-log").glob("[0-9]*"))
    records = [Record.model_validate_json((folder / "record.json").read_text("utf-8")) for folder in folders]
    steps = [one.op for one in records]
    assert steps.count("cuda_matmul") >= 10
    assert steps.count("reduce_sum") >= 6
    assert all(one.status == "ok" and one.counters and one.machine.gpu for one in records)
    pairs = [one.timing.against_previous for one in records if one.timing.against_previous]
    assert sum(pair.low <= 1 for pair in pairs) >= 2, "steps that failed are part of it"


def test_a_number_of_the_worked_example_cannot_be_changed(tmp_path):
    tree = tmp_path / "gpu-programming"
    shutil.copytree(ROOT / "solutions" / "gpu-programming", tree)
    log = tree / "KERNEL_LOG.md"
    text = log.read_text("utf-8")
    *_, rate = re.finditer(r"^\| rate \|.*\| (\d)\.?\d* TB/s", text, re.MULTILINE)
    at = rate.start(1)
    log.write_text(f"{text[:at]}{9 - int(rate[1])}{text[at + 1 :]}", "utf-8")
    assert [name for name, verdict in verdicts(tmp_path).items() if verdict is not Verdict.PASS] == [
        "unbroken"
    ]
