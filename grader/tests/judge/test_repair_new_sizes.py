"""An edit that is right in the sizes of the listed cases alone is not believed."""

import pytest

from grader.course import catalog
from grader.course.parts import parts_of
from grader.course.submission import Submission
from grader.judge.repair.bench import Bench
from grader.judge.repair.new_sizes import of_other_sizes
from grader.judge.trial import elements
from grader.tests.helpers.course import ROOT, swap
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

SOLUTIONS = ROOT / "solutions"
EXERCISES = {one.name: (entry, one) for entry in catalog.find() for one in entry.lab.functions}


def cases_of(exercise):
    """Return cases that run on a CPU, the smallest first."""
    return sorted((one for one in exercise.cases if not one.needs_gpu and not one.is_far), key=elements)


@pytest.fixture
def bench_of(warm):
    made = []

    def make(name, failing=1):
        entry, exercise = EXERCISES[name]
        arena = Arena.create("cpu", 1 << 26)
        made.append(arena)
        submission = Submission.read(entry.submission(SOLUTIONS, exercise))
        found = parts_of(submission, entry.lab.imports.get(exercise.file, frozenset()), Submission.read)
        parts = tuple(part.submission for part in found)
        worker = SubmissionWorker(warm, submission, arena, interpreted=True, given=entry.given, parts=parts)
        made.append(worker)
        cases = cases_of(exercise)[: len(cases_of(exercise)) * 3 // 4]
        bench = Bench(worker, exercise, cases[-failing:], cases[:-failing], 0)
        return bench, submission.path.read_text()

    yield make
    for one in reversed(made):
        one.close()


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_is_right_in_sizes_that_no_case_has(bench_of, name):
    bench, text = bench_of(name)
    assert bench.holds_for_new_sizes(text, text, frozenset({0}))
    tried = {trial.case.name for trial in bench._new.values() if trial}
    assert tried, "no case of other sizes was tried"
    assert not tried & {one.name for one in cases_of(EXERCISES[name][1])}


def test_a_size_of_the_listed_cases_in_the_code_is_found(bench_of):
    bench, text = bench_of("elementwise_add")
    listed = " | ".join(f"(n == {one.params['n']})" for one in cases_of(EXERCISES["elementwise_add"][1]))
    only = swap(text, "mask = offs < n", f"mask = (offs < n) & ({listed})")
    assert not bench.holds_for_new_sizes(only, text, frozenset({0}))
    assert not bench.holds_for_new_sizes(only, text, frozenset())


def test_what_is_wrong_without_the_edit_does_not_count_against_one_that_mends_some(bench_of):
    bench, text = bench_of("elementwise_add")
    wrong = swap(text, "x + y", "x - y")
    assert not bench.holds_for_new_sizes(wrong, wrong, frozenset({0}))
    assert bench.holds_for_new_sizes(wrong, wrong, frozenset())


def test_an_edit_that_mends_some_is_right_in_new_sizes_like_those(bench_of):
    bench, text = bench_of("elementwise_add", failing=4)
    wrong = swap(text, "x + y", "x - y")
    listed = " | ".join(f"(n == {one.params['n']})" for one in cases_of(EXERCISES["elementwise_add"][1]))
    only = swap(text, "x + y", f"tl.where({listed}, x + y, x - y)")
    some = frozenset({0, 1, 2})
    assert not bench.holds_for_new_sizes(only, wrong, some)
    assert bench.holds_for_new_sizes(text, wrong, some)


def test_new_sizes_lie_between_the_listed_ones_and_are_small():
    exercise = EXERCISES["softmax_forward"][1]
    cases = cases_of(exercise)
    found = list(of_other_sizes(cases[0], cases, frozenset(cases[0].params.values()), 64, 4096))
    assert found
    for case in found:
        assert 64 <= elements(case) <= 4096
        assert case.params["cols"] <= max(one.params["cols"] for one in cases)
