"""Which edits do the same in a case: seen in one run, in which all of them are computed."""

import ast

import pytest
import triton.language as tl

from grader.course import catalog
from grader.course.submission import Submission
from grader.judge.repair.bench import Bench
from grader.judge.repair.candidates import candidates
from grader.judge.repair.edit import Edit
from grader.judge.repair.effects import ACTS, Effects, _is_expression
from grader.judge.repair.source import Source
from grader.judge.trial import elements
from grader.tests.helpers.course import solution, swap
from grader.worker.interpreted.alternatives import LOOKED_AT
from grader.worker.messages import SAME
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

WRONG = swap(solution(1), "x + y, mask=mask", "x - y, mask=mask")


@pytest.fixture
def lab_1(warm, tmp_path):
    """A bench for a wrong file of lab 1, aimed at a case, and the file's source."""
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    (tmp_path / "elementwise_add.py").write_text(WRONG)
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    case = next(one for one in exercise.cases if one.name == "n=1009,fp32")
    bench = Bench(worker, exercise, [case], [], 0)
    bench.aim(case, WRONG)
    yield bench, Source(WRONG)
    worker.close()
    arena.close()


@pytest.fixture
def lab_2(warm, tmp_path):
    """A bench for a file of lab 2 that saves the wrong tensor, aimed at autograd, and the source."""
    text = swap(solution(2), "ctx.save_for_backward(y)", "ctx.save_for_backward(x)")
    entry = next(entry for entry in catalog.find() if entry.number == 2)
    exercise = next(one for one in entry.lab.exercises if one.name == "softmax")
    (tmp_path / "online_softmax.py").write_text(text)
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "online_softmax.py"), arena, interpreted=True)
    case = min((one for one in exercise.cases if not one.needs_gpu), key=elements)
    bench = Bench(worker, exercise, [case], [], 0)
    bench.aim(case, text)
    yield bench, Source(text)
    worker.close()
    arena.close()


def edit(source, old, new):
    """An edit of the one place where a text stands."""
    assert source.text.count(old) == 1, old
    begin = len(source.text[: source.text.index(old)].encode())
    line = source.text[: source.text.index(old)].count("\n") + 1
    return Edit(0, line, f"`{old}` for `{new}`", (((begin, begin + len(old.encode())), new),))


def known(bench, source, edits, count=1):
    effects = Effects(source, edits)
    ast.parse(effects.text)
    seen = {}
    for share in range(count):
        seen |= bench.alternatives(effects.text, (share, count))
    return effects.known(seen)


def test_edits_that_change_nothing_or_fail_or_repeat_come_last(lab_1):
    bench, source = lab_1
    same = edit(source, "pid * BLOCK + ", "BLOCK * pid + ")
    fails = edit(source, "pid * BLOCK + ", "pid * no_such_name + ")
    other = edit(source, "x - y", "x * y")
    again = edit(source, "x - y", "y * x")
    plus = edit(source, "x - y", "x + y")
    found = known(bench, source, [same, fails, other, again, plus])
    assert found.edits == [other, plus, same, fails, again]
    assert found.twins([other]) == [again]
    assert found.twins([other.deciding("x - y")]) == [again]  # the words of an edit that mends may change
    assert found.twins([plus]) == []


def test_of_edits_with_one_effect_one_place_comes_before_several():
    source = Source(WRONG)
    times = edit(source, "x - y", "x * y")
    (one, _), nothing = edit(source, "x - y", "0").parts[0], edit(source, "pid * BLOCK + ", "0 + ").parts[0]
    several = Edit(0, times.line, "`x - y` (and so in line 3)", ((one, "x + y"), (nothing[0], "x + y")))
    single = Edit(0, times.line, "`x - y` for `x + y`", ((one, "x + y"),))
    effects = Effects(source, [several, times, single])
    (of_value, _), (of_offset, _) = effects._of[0]
    numbers = {at: str(effects._numbers[at]) for at in (of_value, of_offset)}
    found = effects.known({numbers[of_value]: [1, 2], numbers[of_offset]: [SAME]})
    assert found.edits == [single, times, several]
    assert found.twins([several]) == [single]


def test_host_code_is_compared_by_its_numbers(lab_1):
    bench, source = lab_1
    same = edit(source, "(triton.cdiv(n, BLOCK),)", "(triton.cdiv(x.numel(), BLOCK),)")
    fewer = edit(source, "(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)")
    assert known(bench, source, [same, fewer]).edits == [fewer, same]


def test_a_statement_that_is_moved_is_not_compared(lab_1):
    bench, source = lab_1
    moved = edit(source, "    tl.store(", "    pass\n    tl.store(")
    found = known(bench, source, [moved])
    assert found.edits == [moved]
    assert found.twins([moved]) == []


def test_what_acts_is_known_of_this_triton():
    words = ("store", "atomic", "print", "assert", "barrier")
    acts = {name for name in dir(tl) if any(word in name for word in words)}
    assert len(acts) > 10
    assert acts <= ACTS


def test_nothing_is_stored_or_launched_twice(lab_1):
    bench, source = lab_1
    edits = candidates(source, "elementwise_add")
    text = Effects(source, edits).text
    assert text.count("tl.store(") == source.text.count("tl.store(")
    assert text.count("_kernel[") == source.text.count("_kernel[")
    assert text.count("torch.empty") == source.text.count("torch.empty")
    assert bench.score(text) == bench.score(WRONG)


def test_all_edits_are_kept_and_shared_among_workers(lab_1):
    bench, source = lab_1
    edits = candidates(source, "elementwise_add")
    one, two = (known(bench, source, edits, count).edits for count in (1, 2))
    assert one == two
    assert set(one) == set(edits)
    assert one != edits


def test_where_the_file_fails_the_edits_stay_in_their_order(lab_1):
    bench, _ = lab_1
    text = swap(WRONG, "    tl.store(", "    tl.no_such_function(x)\n    tl.store(")
    source = Source(text)
    edits = candidates(source, "elementwise_add")
    assert known(bench, source, edits).edits == edits


@pytest.mark.parametrize("iterations", [*range(1, 14), 15, 16, 17, 33])
def test_of_a_loop_the_last_iteration_is_among_those_that_are_looked_at(iterations):
    assert any(one % iterations == 0 for one in LOOKED_AT)


def test_an_edit_that_is_selected_does_what_the_edited_file_does(lab_1):
    bench, source = lab_1
    edits = candidates(source, "elementwise_add")
    found = known(bench, source, edits)
    tried = [one for one in found.edits if one.parts in found.selected][:60]
    assert len(tried) == 60
    texts = [source.with_replaced(one.parts) for one in tried]
    selected = [
        bench.score(text, selected=found.selected[one.parts]) for one, text in zip(tried, texts, strict=True)
    ]
    assert selected == [bench.score(text) for text in texts]
    assert max(selected) == 1.0
    assert len(set(selected)) > 2


def test_what_a_grid_of_a_lambda_and_a_launch_with_one_are_made_of_is_selected():
    text = swap(WRONG, "(triton.cdiv(n, BLOCK),)", "lambda meta: (triton.cdiv(n, meta['BLOCK']),)")
    text = swap(text, "kernel[grid](x, y,", "kernel[lambda meta: grid(meta)](x, y,")
    text = swap(text, "out, n, BLOCK=BLOCK", "out, n + 0, BLOCK=BLOCK")
    source = Source(text)
    for old, new in (("triton.cdiv(n, ", "triton.cdiv(n + 1, "), ("n + 0", "n + 1")):
        one = edit(source, old, new)
        effects = Effects(source, [one])
        assert effects.known({"0": [1]}).selected == {one.parts: {"0": 1}}
        ast.parse(effects.text)


def test_a_process_that_has_ended_reads_the_text_with_alternatives_again(lab_1):
    bench, source = lab_1
    plus = edit(source, "x - y", "x + y")
    found = known(bench, source, [plus])
    text = source.with_replaced(plus.parts)
    assert bench.score(text, selected=found.selected[plus.parts]) == 1.0
    bench._worker.close()
    assert bench.score(text, selected=found.selected[plus.parts]) == 1.0


def test_what_a_method_computes_is_selected_as_well(lab_2):
    bench, source = lab_2
    of_saved = "`x` is the wrong value in `ctx.save_for_backward(x)`"
    saved = next(one for one in candidates(source, "softmax") if of_saved in one.mistake)
    found = known(bench, source, [saved])
    text = source.with_replaced(saved.parts)
    assert bench.score(text, selected=found.selected[saved.parts]) == bench.score(text) == 1.0


def test_where_the_text_with_alternatives_does_not_run_nothing_is_selected(lab_1):
    _, source = lab_1
    effects = Effects(source, [edit(source, "x - y", "x + y")])
    assert effects.known({}).selected == {}
    assert len(effects.known({"0": [1]}).selected) == 1


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("1, n", False), ("(1, n)", True), ("f(1, n)", True), ("lambda: n", False), ("1 +", False)],
)
def test_several_arguments_are_no_expression(text, is_one):
    assert _is_expression(text) == is_one
