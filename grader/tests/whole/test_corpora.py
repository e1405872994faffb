"""Student bugs, other right answers, cheats and faults: every file gets the verdict of its first line."""

import pytest

from grader.course.items import SPEED
from grader.course.spec import Case
from grader.sandbox import limits
from grader.system import gpu
from grader.tests.helpers.corpus_counts import corpus_of
from grader.tests.whole.corpus import Examiner, check, one_dtype_each
from grader.tests.whole.everyday import CORPORA, listed, on, path_of

WRONG, VARIANTS = CORPORA["student bugs"], CORPORA["honest variants"]
CHEATS, FAULTS = CORPORA["cheats"], CORPORA["faults"]
EVERYDAY = set(listed())


def test_a_right_answer_runs_each_case_in_one_dtype_and_all_dtypes_in_turn():
    cases = [Case({"n": n}, dtype) for n in (1, 2, 3) for dtype in ("fp32", "fp16", "bf16")]
    assert [case.name for case in one_dtype_each(cases)] == ["n=1,fp32", "n=2,fp16", "n=3,fp32"]
    assert [case.name for case in one_dtype_each(cases[2:3])] == ["n=1,bf16"]


# Rows whose specimens fill the GPU or the machine's memory, or leave kernels behind that do not end.
GREEDY = {"D1", "D3", "D4", "D5", "F5", "F6", "F7", "F12", "F13"}


def marks(where, specimen):
    """On a CPU all but those of the list are for `make test-all`; on a GPU each takes its turn."""
    if where == "CPU":
        return [] if path_of(specimen) in EVERYDAY else [pytest.mark.slow]
    return [pytest.mark.whole_gpu] if specimen.kind == SPEED or specimen.row in GREEDY else []


def named(specimen):
    """Its id, which tells a variant that is only measured from those that are right answers."""
    refused = "variants" in specimen.path.parts and specimen in WRONG
    return f"{specimen.name}-refused" if refused else specimen.name


def marked(where, specimens):
    return [pytest.param(one, id=named(one), marks=marks(where, one)) for one in on(where, specimens)]


def both_ways(where, specimens):
    """Each with the static screen on, and off where the screen refuses it: else that is the same run."""
    for one in on(where, specimens):
        yield pytest.param(one, True, id=f"{one.name}-screened", marks=marks(where, one))
        if "POLICY" in one.screened:
            yield pytest.param(one, False, id=f"{one.name}-unscreened", marks=marks(where, one))


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    examiner = Examiner(tmp_path_factory.mktemp("specimens"), "cpu")
    yield examiner
    examiner.close()


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    found, missing = gpu.find()
    assert found, missing
    examiner = Examiner(tmp_path_factory.mktemp("specimens"), "gpu", found)
    yield examiner
    examiner.close()


@pytest.mark.parametrize("specimen", marked("CPU", WRONG))
def test_student_bug_is_rejected_with_its_verdict_and_hint(cpu, specimen):
    check(cpu, specimen)


@pytest.mark.parametrize("specimen", marked("CPU", VARIANTS))
def test_other_right_answer_passes_without_a_flag(cpu, specimen):
    check(cpu, specimen)


@pytest.mark.parametrize(("specimen", "screened"), list(both_ways("CPU", CHEATS)))
def test_cheat_gets_its_verdict(cpu, specimen, screened, monkeypatch):
    monkeypatch.setattr(limits, "MOST_BYTES", 2 << 30)  # to touch eight takes a quarter of a minute
    check(cpu, specimen, screened)


@pytest.mark.parametrize("specimen", marked("CPU", FAULTS))
def test_fault_gets_its_verdict(cpu, specimen, monkeypatch):
    monkeypatch.setattr(limits, "MOST_BYTES", 2 << 30)  # to touch eight takes half a minute
    check(cpu, specimen, screened=False)


@pytest.mark.gpu
@pytest.mark.parametrize("specimen", marked("GPU", WRONG + VARIANTS))
def test_student_answer_gets_its_verdict_on_a_gpu(card, specimen):
    check(card, specimen)


@pytest.mark.gpu
@pytest.mark.parametrize(("specimen", "screened"), list(both_ways("GPU", CHEATS)))
def test_cheat_gets_its_verdict_on_a_gpu(card, specimen, screened):
    check(card, specimen, screened)


@pytest.mark.gpu
@pytest.mark.parametrize("specimen", marked("GPU", FAULTS))
def test_fault_gets_its_verdict_on_a_gpu(card, specimen):
    check(card, specimen, screened=False)


def test_only_specimens_are_counted_and_each_in_its_corpus():
    tests = {
        "test_a_right_answer_runs_each_case": "",
        "test_student_bug[lab2_online_softmax/wrong/no_mask]": "student bugs, named check and hint",
        "test_student_bug[cuda-kernels/wrong/sum_blocks_race]": "student bugs, named check and hint",
        "test_other_right_answer[lab2/variants/three_passes]": "honest variants without a flag",
        "test_student_bug[lab4/variants/naive-refused]": "student bugs, named check and hint",
        "test_fault[tests/faults/f08_sleep]": "faults with their verdict",
        "test_cheat[tests/cheats/a15_branch_twin-screened]": "benign twins passed, static screen on",
        "test_cheat[tests/cheats/d01_deadlock-unscreened]": "cheats caught, exact verdict, static screen off",
    }
    for test, corpus in tests.items():
        assert corpus_of(f"grader/tests/whole/test_corpora.py::{test}") == corpus
    assert corpus_of("grader/tests/whole/test_faults.py::test_student_bug[lab2/wrong/no_mask]") == ""
