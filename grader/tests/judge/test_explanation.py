"""One cause for all wrong cases of an exercise: from edits that mend the file, or from the cases."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from grader.course.spec import Case, Verdict
from grader.course.submission import Submission
from grader.judge import explanation
from grader.judge.experiments.of_exercise import Experiments, outside_of_right
from grader.judge.explanation import Explainer, _shows_a_formula
from grader.judge.repair.bench import ACCESSES_OF_WORK, Bench
from grader.judge.repair.edit import Edit
from grader.judge.repair.search import WORK_FOR_ONE, Repair, Search
from grader.judge.repair.smaller import by_smaller_blocks, smaller_blocks
from grader.judge.repair.source import Source
from grader.judge.usual_config import separated
from grader.judge.wrong import Wrong
from grader.system.text import one_line
from grader.worker.witness.record import Birth

LAB_1 = Path("solutions/lab1_elementwise_add/elementwise_add.py").read_text()
DROPOUT = Path("solutions/lab4_production_slice/dropout.py").read_text()
LAB_3 = Path("solutions/lab3_autotuned_matmul/autotuned_matmul.py").read_text()
LAB_2 = Path("solutions/lab2_online_softmax/online_softmax.py").read_text()
BLIND = Path("grader/tests")
KEEPING = """    if n in KEPT:
        out.copy_(KEPT[n])
    else:
        KEPT[n] = out.clone()
    return out
"""
SIZES = ("n=7,fp32", "n=127,fp32", "n=1009,fp32", "n=65537,fp32")
ROWS = ("rows=5,cols=127,fp32", "rows=29,cols=1001,fp32")


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def causes(submissions, number, text, *cases):
    """The cause of each wrong case by item id, and the exercises that were looked at."""
    graded = submissions.grade(number, text, *cases)
    answers = [(submissions.asked[name], outcome, 0.0) for name, outcome in graded.items()]
    begun, told = [], {}
    found = submissions.run.explained(answers, begun.append, told.__setitem__)
    shown = {outcome.cause for item, outcome, _ in found if outcome not in graded.values()}
    at_once = {cause for of_one in told.values() for cause in of_one}
    assert shown <= at_once
    assert not shown or at_once <= {outcome.cause for _, outcome, _ in found}
    assert {*told} <= {*begun}
    assert [item for item, _, _ in found] == [item for item, _, _ in answers]
    assert [outcome.label for _, outcome, _ in found] == [outcome.label for _, outcome, _ in answers]
    return {
        item.id: outcome.cause for item, outcome, _ in found if outcome.verdict is not Verdict.PASS
    }, begun


def sizes(*names):
    return [f"elementwise_add/{name}" for name in names]


def test_a_right_file_is_not_searched(submissions):
    assert causes(submissions, 1, LAB_1, *sizes(*SIZES)) == ({}, [])


def test_one_wrong_line_is_named_in_every_wrong_case(submissions):
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)"))
    found, begun = causes(submissions, 1, text, *sizes(*SIZES))
    line = text.split("\n").index("        grid = (n // BLOCK,)") + 1
    assert len(found) == len(SIZES)
    assert set(found.values()) == {f"line {line}: `n // BLOCK` drops the last, partial block"}
    assert begun == ["elementwise_add"]


# With other edits, or more programs, some programs store what others have left out, or have stored before.
HIDDEN_BY_OVERLAP = {
    "elementwise_add_01_strip": "`TILE_R` and `TILE_C` are exchanged in `idx = ",
    "elementwise_add_03_launches": "no program stores elements 1025 to 1535 of `out`; line 24 stores up to ",
    "elementwise_add_04_unrolled": "line 31: `blocks // BLOCKS_PER_PROGRAM` drops the last, partial block",
}


@pytest.mark.parametrize("name", HIDDEN_BY_OVERLAP)
def test_what_stores_elements_again_hides_a_mistake_and_mends_nothing(submissions, name):
    (file,) = BLIND.glob(f"blind_mistakes_*/{name}.py")
    cases = ("n=1009,fp32", "n=1536,fp16", "n=4099,values=edges,fp32", "n=4099,values=spikes,fp32")
    found, _ = causes(submissions, 1, file.read_text().partition("\n")[2], *sizes(*cases))
    assert found
    assert all(HIDDEN_BY_OVERLAP[name] in cause for cause in found.values()), found


@pytest.mark.parametrize(
    ("seconds", "start_up", "took", "least", "is_tried"),
    [
        (0.0, 0.0, 0.0, 0.0, False),
        (60.0, 0.0, 0.0, 0.0, True),
        (60.0, 0.0, 61.0, 0.0, False),
        (60.0, 61.0, 0.0, 0.0, False),
        (60.0, 31.0, 30.0, 0.0, False),
        (60.0, 31.0, 30.0, 30.0, True),
    ],
)
def test_edits_are_tried_for_as_many_seconds_as_the_lab_says(
    submissions, monkeypatch, seconds, start_up, took, least, is_tried
):
    monkeypatch.setattr(explanation, "LEAST_SEARCH_S", least)
    text = changed(LAB_1, ("x + y, mask", "x - y, mask"))
    graded = submissions.grade(1, text, *sizes("n=127,fp32"))
    answers = [(submissions.asked[name], outcome, 0.0) for name, outcome in graded.items()]
    entry = answers[0][0].entry
    shorter = replace(entry, lab=replace(entry.lab, search_s=seconds))
    answers = [(replace(item, entry=shorter), outcome, took) for item, outcome, _ in answers]
    tried, was = [], Search._try
    monkeypatch.setattr(Search, "_try", lambda *given: tried.append(given) or was(*given))
    submissions.run.explained(answers, lambda _: None, lambda *_: None, start_up)
    assert bool(tried) is is_tried


def test_what_is_measured_of_one_mistake_is_not_lost_beside_another(submissions):
    file = BLIND / "blind_mistakes_18" / "elementwise_add_05_cedar.py"
    cases = sizes("n=1,fp32", "n=1009,fp32", "n=65537,fp32", "n=4099,values=edges,fp32")
    found, _ = causes(submissions, 1, file.read_text().partition("\n")[2], *cases)
    told = found["elementwise_add/correctness/n=4099,values=edges,fp32"]
    assert "what `acc` was before does not belong in `acc += " in told
    assert "are needed" in found["elementwise_add/correctness/n=65537,fp32"]


def test_where_the_file_does_not_run_each_case_keeps_its_own_cause(submissions, monkeypatch):
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)"))
    graded = submissions.grade(1, text, *sizes(*SIZES))
    monkeypatch.setattr(Bench, "score", lambda *_: -1.0)
    answers = [(submissions.asked[name], outcome, 0.0) for name, outcome in graded.items()]
    assert any(outcome.cause for _, outcome, _ in answers)
    assert submissions.run.explained(answers, lambda _: None, lambda *_: None) == answers


@pytest.mark.slow
def test_of_a_costly_kernel_fewer_edits_are_tried(submissions, monkeypatch):
    lost = "tl.sin(x) * 0.5 + y * y * 3.0 + tl.cos(x)"
    text = changed(LAB_1, ("x + y, mask", f"{lost}, mask"))
    tried, score = [], Bench.score

    def counted(bench, edited, *asked, **named):
        tried.append(edited)
        return score(bench, edited, *asked, **named)

    monkeypatch.setattr(Bench, "score", counted)
    monkeypatch.setattr(Search, "mend_first", lambda *_: None)  # small calls have work of their own
    causes(submissions, 1, text, *sizes(*SIZES))
    cheap = len(tried)
    tried.clear()
    monkeypatch.setattr(Bench, "work", lambda *_: WORK_FOR_ONE // 20)
    causes(submissions, 1, text, *sizes(*SIZES))
    assert cheap > 100
    # The file as it is, before and after a smaller case was looked for; what fails costs little.
    assert 2 + 20 <= len(tried) <= 2 + 30


def test_the_work_of_a_try_is_that_of_its_loads_and_stores(submissions, monkeypatch):
    worked, work = [], Bench.work
    monkeypatch.setattr(Bench, "work", lambda bench, *own: worked.append(work(bench, *own)) or worked[-1])
    wrong = changed(LAB_1, ("x + y, mask", "x - y, mask"))
    often = changed(
        wrong,
        (
            "    x = tl.load",
            "    for _ in range(50):\n        tl.load(x_ptr + offs, mask=mask)\n    x = tl.load",
        ),
    )
    most = []
    for text in (wrong, often):
        worked.clear()
        causes(submissions, 1, text, *sizes("n=127,fp32"))
        most.append(max(worked))
    assert most[1] - most[0] >= 50 // ACCESSES_OF_WORK


def test_mistakes_of_two_functions_are_named_in_each_and_in_the_third(submissions):
    text = changed(
        LAB_2, ("y = (tl.exp(x - m) / d)", "y = (tl.exp(x - m) * d)"), ("(dy - dot)", "(dy + dot)")
    )
    names = [f"{name}/{rows}" for name in ("softmax_forward", "softmax_backward") for rows in ROWS]
    found, _ = causes(submissions, 2, text, *names, "softmax/rows=29,cols=1001,fp32")
    said = {name.partition("/")[0]: cause for name, cause in found.items()}
    forward, backward = "`tl.exp(x - m) * d`", "`dy + dot`"
    assert (forward in said["softmax_forward"], backward in said["softmax_forward"]) == (True, False)
    assert (forward in said["softmax_backward"], backward in said["softmax_backward"]) == (False, True)
    assert (forward in said["softmax"], backward in said["softmax"]) == (True, True)


def test_an_edit_that_lets_another_kernel_run_is_named_as_one_that_goes_around(submissions):
    lost = "tl.sin(x) * 0.5 + y * y * 3.0 + tl.cos(x)"
    text = changed(LAB_1, ("x + y, mask", f"{lost}, mask"))
    kernel = LAB_1[LAB_1.index("@triton.jit") : LAB_1.index("def elementwise_add(")]
    other = kernel.replace("elementwise_add_kernel", "long_vector_kernel")
    launch = "        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"
    both = """        if n > 1_000_000:
            long_vector_kernel[grid](x, y, out, n, BLOCK=BLOCK)
        else:
            elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"""
    text = changed(text, (launch, both), ("def elementwise_add(", f"{other}def elementwise_add("))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    (cause,) = set(found.values())
    assert (
        cause.endswith("is the wrong condition, or what it decides is wrong") or "or what it decides" in cause
    )


SHARING = """import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    hop = tl.num_programs(axis=0).to(tl.int64)
    block = tl.program_id(axis=0).to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x_at, y_at, out_at = x_ptr + at, y_ptr + at, out_ptr + at
    while block * BLOCK < n:
        inside = at < n
        tl.store(out_at, tl.load(x_at, mask=inside) + tl.load(y_at, mask=inside), mask=inside)
        block += hop
        x_at += BLOCK
        y_at += BLOCK
        out_at += BLOCK
        at += BLOCK


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n:
        programs = triton.cdiv(triton.cdiv(n, 256), 2)
        sum_kernel[(programs,)](x, y, out, n, BLOCK=256)
    return out
"""


@pytest.mark.slow
def test_more_programs_that_share_the_work_only_hide_what_later_turns_do(submissions):
    found, _ = causes(submissions, 1, SHARING, *sizes(*SIZES))
    assert found
    assert all("later ones are not" in cause for cause in found.values()), found


@pytest.mark.slow
def test_of_a_caller_of_a_function_whose_mistake_was_not_found_its_own_code_is_searched(
    submissions, monkeypatch
):
    lost = "tl.sum(tl.sin(x) * x + tl.cos(x) * 3.0 + 0.5 * x * x * x, axis=0)"
    text = changed(LAB_2, ("tl.sum(tl.exp(x - shift), axis=0)", lost))
    searched, mend = [], Search.mend

    def counted(search, *asked, **named):
        searched.append(search)
        return mend(search, *asked, **named)

    monkeypatch.setattr(Search, "mend", counted)
    names = [f"softmax_forward/{rows}" for rows in ROWS]
    found, _ = causes(submissions, 2, text, *names, "softmax/rows=29,cols=1001,fp32")
    cause = found["softmax/correctness/rows=29,cols=1001,fp32"]
    assert cause == "it calls `softmax_forward`, which is wrong: its cause comes first"
    first, second = searched  # of softmax_forward, and of what only softmax runs
    assert 10 * len(second._edits) < len(first._edits)


IN_BOTH = (("y = (tl.exp(x - m) / d)", "y = (tl.exp(x - m) * d)"), ("(dy - dot)", "(dy + dot)"))
OF_EACH = [f"{name}/rows=29,cols=1001,fp32" for name in ("softmax_forward", "softmax_backward", "softmax")]


@pytest.mark.slow
def test_known_edits_of_code_that_an_exercise_does_not_run_are_not_tried_on_top(submissions, monkeypatch):
    tried, reached = [], Search._reached

    def noted(search, edits):
        found = reached(search, edits)
        tried.extend([[edit.line for edit in found]] if found else [])
        return found

    monkeypatch.setattr(Search, "_reached", noted)
    text = changed(LAB_2, *IN_BOTH)
    found, begun = causes(submissions, 2, text, *OF_EACH)
    assert begun == ["softmax_forward", "softmax_backward", "softmax"]
    assert len(found) == len(OF_EACH)
    assert tried == [[line_of(text, "(tl.exp(x - m) * d)"), line_of(text, "(dy + dot)")]]


TUNED = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (64, 128, 256, 512)], key=["n"])
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
    if BLOCK > 128:
        y = 2.0 * y
    tl.store(out_ptr + at, x + y, mask=at < n)


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
"""


COPIED = """@triton.autotune(configs=[triton.Config({"FIRST": size}) for size in (16, 32)], key=["n"])
@triton.jit
def copied(from_ptr, to_ptr, n, FIRST: tl.constexpr):
    at = tl.arange(0, FIRST)
    tl.store(to_ptr + at, tl.load(from_ptr + at, mask=at < n), mask=at < n)
"""


def test_a_config_that_some_wrong_cases_name_is_tried_in_the_others(submissions, monkeypatch):
    """A case that is wrong in its first call was tried with no other config."""
    names = sizes(*(f"n={n},fp32" for n in (7, 127, 1009)))
    names += [f"elementwise_add/n=4099,values={kind},fp32" for kind in ("edges", "spikes")]
    seen, by_config = [], Experiments.by_config
    monkeypatch.setattr(
        Experiments, "by_config", lambda self, wrong: seen.extend((wrong, by_config(self, wrong))) or seen[1]
    )
    causes(submissions, 1, TUNED, *names)
    before, after = (
        [(item, one) for item, one in wrong.answers if one.verdict is not Verdict.PASS] for wrong in seen[:2]
    )
    told = [one for _, one in before if one.configs]
    assert 0 < len(told) < len(before)
    (cause,) = {one.cause for _, one in after}
    some = r"BLOCK=({0}|{1})( or ({0}|{1}))?".format
    assert re.fullmatch(
        f"not found; `kernel` is right with {some(64, 128)}, and wrong with {some(256, 512)}", cause
    )
    assert all(item.case.configs == one.configs for item, one in after)


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ([(64, 64)], [(64, 128)], "not found; `k` is right with N=64, and wrong with N=128"),
        ([(64, 64)], [(32, 128)], "not found; `k` is right with M=64, N=64, and wrong with M=32, N=128"),
        ([(64, 64), (32, 32)], [(64, 128)], "not found; `k` is right with N=64 or 32, and wrong with N=128"),
        (
            [(128, 128), (64, 32)],
            [(64, 128), (32, 64)],
            "`k` is wrong with the configs in which N is larger than M",
        ),
        ([(64, 64), (32, 128)], [(64, 128), (32, 64)], ""),
        ([], [], ""),
    ],
)
def test_what_separates_right_configs_from_wrong_ones(right, wrong, words):
    good, bad = (
        [{"k": f"M: {m}, N: {n}, num_warps: {warps}"} for m, n in some]
        for warps, some in ((4, right), (8, wrong))
    )
    assert separated(good, bad, ["k"] if bad else []) == words


def test_the_kernel_whose_config_decides_is_named_and_none_that_ran_beside_it(submissions, monkeypatch):
    """A second kernel has a config of its own in each call; what the compiler alone looks at is not named."""
    seen, by_config = [], Experiments.by_config
    monkeypatch.setattr(
        Experiments, "by_config", lambda self, wrong: seen.append(by_config(self, wrong)) or seen[-1]
    )
    text = changed(
        TUNED,
        (
            '{"BLOCK": size}) for size in (64, 128, 256, 512)]',
            '{"BLOCK": size}, num_warps=size // 64) for size in (64, 256)]',
        ),
        ("def elementwise_add", COPIED + "\n\ndef elementwise_add"),
        ("    return out\n", "    copied[(1,)](out, out, 1)\n    return out\n"),
    )
    causes(submissions, 1, text, *sizes(*(f"n={n},fp32" for n in (7, 127, 1009))))
    assert {one.cause for _, one in seen[0].answers if one.configs} == {
        "not found; `kernel` is right with BLOCK=64, and wrong with BLOCK=256"
    }


def test_lost_digits_are_not_said_beside_values_that_are_quite_wrong_without_a_cause(
    submissions, monkeypatch
):
    """What is not found makes a little difference in some cases, and a large one in others."""
    monkeypatch.setattr(Explainer, "_by_edits", lambda *_, **__: (None, ""))
    monkeypatch.setattr(Experiments, "born", lambda *asked: f"line 7 loses digits: {asked[-1]}")
    little = changed(LAB_2, ("(tl.exp(x - m) / d)", "(tl.exp(x - m) / d * 1.001)"))
    found, _ = causes(submissions, 2, little, *(f"softmax_forward/{one}" for one in ROWS))
    assert all(cause.startswith("line 7 loses digits") for cause in found.values())
    both = changed(little, ("* 1.001", "* tl.where(n_cols > 500, 1.5, 1.001)"))
    found, _ = causes(submissions, 2, both, *(f"softmax_forward/{one}" for one in ROWS))
    assert len(found) == len(ROWS)
    assert not any("loses digits" in cause for cause in found.values())


WITHOUT_LOG = "(tl.exp(x - m) / d)", "tl.exp(x - (m + d))"


@pytest.mark.slow
def test_a_function_that_is_missing_where_a_sum_is_used_is_named_with_what_is_left(submissions):
    """exp(x - (m + log(d))) is the formula; where numbers are far from 0 it has too few digits."""
    text = changed(LAB_2, WITHOUT_LOG)
    names = [f"softmax_forward/{one}" for one in (*ROWS, "rows=5,cols=1009,values=offset,fp32")]
    found, _ = causes(submissions, 2, text, *names)
    *plain, offset = found.values()
    named = f"line {line_of(text, '(m + d)')}: a function such as `tl.log` is missing around `d`"
    assert plain == [named] * len(ROWS)
    assert offset == f"{named}. With that right, too many digits are lost still"


def test_what_has_mended_one_function_is_tried_on_the_next_before_experiments(submissions, monkeypatch):
    """An experiment may show another cause of what the same edit mends: that depends on the configs drawn."""
    asked, tried = [], Explainer._tried
    monkeypatch.setattr(
        Explainer, "_tried", lambda self, wrong: asked.append(wrong.exercise.name) or tried(self, wrong)
    )
    masks = "offs_m[:, None] < {}, offs_n[None, :] < {}"
    text = changed(LAB_3, (masks.format("M", "N"), masks.format("N", "M")))
    cases = [f"{name}/m=100,n=300,k=257,fp32" for name in ("matmul", "matmul_bias_relu")]
    found, begun = causes(submissions, 3, text, *cases)
    assert begun == ["matmul", "matmul_bias_relu"]
    assert asked == ["matmul"]
    assert len({*found.values()}) == 1


@pytest.mark.parametrize("unmended", [1, 2], ids=["one of them", "both"])
def test_where_a_function_that_it_calls_was_not_mended_all_wrong_ones_are_named(
    submissions, monkeypatch, unmended
):
    mend, lost = Search.mend, ("softmax_forward", "softmax_backward")[:unmended]

    def of_some(search, *asked, **named):
        return None if search._benches[0]._exercise.name in lost else mend(search, *asked, **named)

    monkeypatch.setattr(Search, "mend", of_some)
    monkeypatch.setattr(Search, "mend_first", lambda *_: None)
    found, _ = causes(submissions, 2, changed(LAB_2, *IN_BOTH), *OF_EACH)
    assert found["softmax/correctness/rows=29,cols=1001,fp32"] == (
        "it calls `softmax_forward` and `softmax_backward`, which are wrong: their causes come first"
    )


TURNED = """@triton.jit
def turned(x, by, IS_GRADIENT: tl.constexpr):
    if IS_GRADIENT:
        x = x - by
    else:
        x = tl.exp(x - by)
    return x


@triton.jit
def online_softmax_kernel("""


def test_an_edit_that_would_make_a_right_exercise_of_the_file_wrong_is_not_named(submissions):
    """With exp in both branches of the helper the forward pass is right, and the backward pass is not."""
    text = changed(
        LAB_2,
        ("@triton.jit\ndef online_softmax_kernel(", TURNED),
        ("tl.exp(x - m) / d", "turned(x, m, True) / d"),
        ("(dy - dot)", "turned(dy, dot, True)"),
    )
    names = [f"{name}/{rows}" for name in ("softmax_forward", "softmax_backward") for rows in ROWS]
    found, begun = causes(submissions, 2, text, *names)
    assert begun == ["softmax_forward"]
    line = line_of(text, "turned(x, m, True)")
    assert set(found.values()) == {f"line {line}: `True` is the wrong choice in `turned(x, m, True)`"}


def test_two_mistakes_of_host_code_between_right_functions_are_named_together(submissions):
    text = changed(
        LAB_2,
        ("ctx.save_for_backward(y)", "ctx.save_for_backward(x)"),
        ("softmax_backward(dy.contiguous(), y)", "softmax_backward(y, dy.contiguous())"),
    )
    found, begun = causes(submissions, 2, text, *OF_EACH)
    assert begun == ["softmax"]
    saved, exchanged = line_of(text, "ctx.save_for_backward(x)"), line_of(text, "softmax_backward(y, dy")
    assert list(found.values()) == [
        f"line {saved}: `x` is the wrong value in `ctx.save_for_backward(x)`; and line {exchanged}: "
        "in `softmax_backward(y, dy.contiguous())` the arguments `y` and `dy.contiguous()` are exchanged"
    ]


def test_an_error_of_the_grader_leaves_the_answers_as_they_are(submissions, monkeypatch, capsys):
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)"))

    def broken(*_):
        raise RuntimeError("a worker is gone")

    monkeypatch.setattr(Bench, "score", broken)
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    assert len(found) == len(SIZES)
    assert all(found.values())
    assert "a worker is gone" in capsys.readouterr().err


def test_two_mistakes_are_both_named(submissions):
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)"), ("x + y, mask", "x - y, mask"))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    (cause,) = set(found.values())
    assert "drops the last, partial block" in cause
    assert "`x - y`" in cause
    assert len(re.findall(r"line \d+: ", cause)) == 2


def test_what_must_be_written_is_not_said(submissions):
    text = changed(LAB_1, ("x + y, mask", "x - y, mask"))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    assert "`x - y`" in next(iter(found.values()))
    assert not any("x + y" in cause for cause in found.values())


@pytest.mark.slow
def test_where_no_edit_helps_the_contrast_is_said_and_no_cause(submissions):
    # A nonsense of many terms for long vectors, which no single edit mends.
    lost = "tl.where(n > 1024, tl.sin(x) * 0.5 + y * y * 3.0, x + y) + tl.where(n > 2048, tl.cos(y), 0.0)"
    text = changed(LAB_1, ("x + y, mask", f"{lost}, mask"))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    assert list(found) == ["elementwise_add/correctness/n=65537,fp32"]
    (cause,) = found.values()
    assert cause == "not found; wrong only where n is 1025 or more; it is right up to 1024"


@pytest.mark.slow
def test_where_no_edit_helps_a_formula_that_the_values_follow_is_named(submissions):
    text = changed(LAB_2, ("dx = (y * (dy - dot))", "dx = (tl.exp(y) - dot)"))
    cases = [f"softmax_backward/{rows}" for rows in ROWS]
    found, _ = causes(submissions, 2, text, *cases)
    assert set(found.values()) == {"the values in `out` are those of `exp(y) - sum(y * dy, axis=1)`"}


@pytest.mark.slow
def test_where_no_formula_is_found_it_is_said_on_what_an_element_depends(submissions):
    text = changed(LAB_1, ("y_ptr + offs, mask=mask", "y_ptr + (offs * 5 + 3) % n, mask=mask, other=0.0"))
    # Among the ends of a dtype the same mistake adds inf and -inf.
    found, _ = causes(submissions, 1, text, *sizes("n=127,fp32", "n=129,fp32", "n=4099,values=edges,fp16"))
    line = line_of(text, "y_ptr + (offs") + 1  # where it is added
    assert set(found.values()) == {
        f"out[0] depends on y[3], and should depend on y[0]; line {line} uses y[3] for it"
    }


def test_a_function_that_calls_a_wrong_one_has_the_same_cause(submissions):
    text = changed(LAB_2, ("x - shift), axis=0)", "x - shift), axis=0) * 2.0"))
    names = [f"{function}/{rows}" for function in ("softmax_forward",) for rows in ROWS]
    found, begun = causes(submissions, 2, text, *names, "softmax/rows=29,cols=1001,fp32")
    assert begun == ["softmax_forward", "softmax"]
    (cause,) = set(found.values())
    line = next(n for n, code in enumerate(text.split("\n"), 1) if "axis=0) * 2.0" in code)
    assert cause.startswith(f"line {line}: ")


@pytest.mark.parametrize("text", ["x" * 70_000, ""], ids=["longer than a frame", "empty"])
def test_a_file_that_cannot_be_edited_is_graded_all_the_same(submissions, text):
    padded = changed(LAB_1, ("x + y, mask", "x - y, mask")) + f"\n# {text}\n"
    found, _ = causes(submissions, 1, padded, *sizes("n=7,fp32"))
    assert len(found) == 1
    assert all(cause == one_line(cause) for cause in found.values())


def test_a_result_that_was_kept_says_so_and_no_edit_is_tried(submissions):
    kept = "KEPT = {}\n\n\ndef elementwise_add("
    text = changed(LAB_1, ("def elementwise_add(", kept), ("    return out\n", KEEPING))
    found, begun = causes(submissions, 1, text, *sizes("n=1009,fp32"))
    assert begun == []
    assert not any("line" in cause for cause in found.values())


def line_of(text, part):
    return next(number for number, code in enumerate(text.split("\n"), 1) if part in code)


def test_loads_without_a_mask_are_outside_although_the_sum_is_right(submissions):
    text = changed(
        LAB_1, ("x_ptr + offs, mask=mask", "x_ptr + offs"), ("y_ptr + offs, mask=mask", "y_ptr + offs")
    )
    graded = submissions.grade(1, text, *sizes(*SIZES))
    assert {outcome.label for outcome in graded.values()} == {"OUT_OF_BOUNDS/READ"}
    assert {outcome.hint for outcome in graded.values()} == {2}
    line = line_of(text, "x_ptr + offs)")
    first = graded["elementwise_add/correctness/n=127,fp32"]
    assert first.where == f"line {line} reads x_ptr[127..1023] of 127, in program 0"
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    assert len(found) == len(SIZES)
    assert all(cause.startswith(f"line {line}: ") for cause in found.values())


def test_one_load_without_a_mask_is_named_by_the_edit_that_brings_it_inside(submissions):
    text = changed(LAB_1, ("y_ptr + offs, mask=mask", "y_ptr + offs, mask=offs <= n"))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    line = line_of(text, "y_ptr + offs,")
    assert len(found) == len(SIZES)
    (cause,) = set(found.values())
    assert cause.startswith(f"line {line}: the comparison `offs <= n`")


COUNTED = """    tl.store(out_ptr + offs, x + y, mask=mask)
    before = tl.load(out_ptr + offs - BLOCK, mask=mask & (pid > 0))
    tl.store(out_ptr + offs - BLOCK, before + 0.0, mask=mask & (pid > 0))
"""


def test_two_programs_that_race_are_named_although_the_sum_is_right(submissions):
    text = changed(LAB_1, ("    tl.store(out_ptr + offs, x + y, mask=mask)\n", COUNTED))
    graded = submissions.grade(1, text, *sizes("n=127,fp32", "n=1536,fp16"))
    right, racing = graded.values()
    assert (right.label, racing.label) == ("PASS", "WRONG/RACE")
    stored, loaded = line_of(text, "x + y, mask"), line_of(text, "before = ")
    assert racing.where == (
        f"program 0 stores out_ptr[0] in line {stored}, and program 1 loads it in line {loaded}"
    )
    found, begun = causes(submissions, 1, text, *sizes("n=127,fp32", "n=1536,fp16"))
    assert begun == []
    assert list(found.values()) == [
        f"lines {stored} and {loaded}: one program stores an element of `out_ptr`, another one loads it, "
        "and programs run in any order"
    ]


def test_a_race_with_wrong_values_is_the_cause_where_no_edit_helps(submissions):
    text = changed(
        LAB_1, ("x + y, mask=mask)\n", "x + y, mask=mask)\n    tl.store(out_ptr, pid * 3.0 + 1.0)\n")
    )
    graded = submissions.grade(1, text, *sizes("n=1009,fp32", "n=4099,values=cancelling,fp32"))
    assert {outcome.label for outcome in graded.values()} == {"WRONG/MISMATCH"}
    line = line_of(text, "pid * 3.0")
    racing = graded["elementwise_add/correctness/n=4099,values=cancelling,fp32"]
    assert racing.plain_cause.startswith(f"lines {line - 1} and {line}: two programs store one element")


def test_a_nan_that_no_edit_mends_is_told_with_its_line_and_operands(submissions):
    lost = "tl.where(n > 1024, (x - x) / (y - y) + tl.sin(x), x + y) + tl.where(n > 2048, tl.cos(y), 0.0)"
    text = changed(LAB_1, ("x + y, mask", f"{lost}, mask"))
    found, _ = causes(submissions, 1, text, *sizes("n=1009,fp32", "n=4099,values=cancelling,fp32"))
    line = line_of(text, "(x - x)")
    assert list(found.values()) == [f"line {line}: 0 / 0 is nan"]


def test_a_nan_in_a_function_that_another_exercise_shows_to_be_right_came_in_with_its_inputs():
    submission = Submission(Path("online_softmax.py"), LAB_2.encode())
    born = [Birth("-", ("inf", "inf"), "nan", line_of(LAB_2, "dx = (y * (dy - dot))"), (0, 0, 0))]
    forward = [Birth("/", ("0", "0"), "nan", line_of(LAB_2, "tl.sum(tl.exp(x - shift)"), (0, 0, 0))]
    exercise = None  # what is asked does not depend on it
    wrong = Wrong(exercise, submission, [], {"softmax_backward"})
    assert outside_of_right(wrong, born) == ()
    assert outside_of_right(wrong, forward) == forward
    assert outside_of_right(Wrong(exercise, submission, []), born) == born


def test_the_tensor_that_an_autograd_function_should_have_saved_is_named(submissions):
    text = changed(LAB_2, ("ctx.save_for_backward(y)", "ctx.save_for_backward(x)"))
    names = [f"softmax_backward/{rows}" for rows in ROWS]
    found, _ = causes(submissions, 2, text, *names, "softmax/rows=29,cols=1001,fp32")
    line = line_of(text, "ctx.save_for_backward(x)")
    assert set(found.values()) == {f"line {line}: `x` is the wrong value in `ctx.save_for_backward(x)`"}


@pytest.mark.slow
def test_a_cause_that_many_mistakes_look_like_is_not_named_but_what_was_measured(submissions):
    # Factors of a row that no one or two edits take out.
    each = "tl.exp(x - shift)"
    lost = (
        f"+ tl.sum({each} * 1.3 + 0.1 * {each} * tl.sin(m_new * 5.0) + 0.2 * {each} * tl.cos(m_new), axis=0)"
    )
    text = changed(LAB_2, ("+ tl.sum(tl.exp(x - shift), axis=0)", lost))
    cases = [f"softmax_forward/{rows}" for rows in ROWS]
    graded = submissions.grade(2, text, *cases)
    assert any("rescale" in outcome.cause for outcome in graded.values())
    found, _ = causes(submissions, 2, text, *cases)
    (cause,) = set(found.values())
    assert re.match(r"not found; each row sums to 0\.\d+ to 0\.\d+ and not to 1", cause)
    assert "rescale" not in cause


def test_where_no_edit_mends_a_file_an_experiment_names_the_line(submissions, monkeypatch):
    monkeypatch.setattr(
        Search, "mend", lambda search, *_, **__: search._benches[0].score(search._source.text) and None
    )
    monkeypatch.setattr(Search, "mend_first", lambda *_: None)
    text = changed(LAB_2, ("x_row_ptr = x_ptr + row * stride_x", "x_row_ptr = x_ptr + row * stride_y"))
    usual = "softmax_forward/rows=29,cols=1001,fp32"
    padded = "softmax_forward/rows=29,cols=1001,x padded 24,out padded 7,fp32"
    found, _ = causes(submissions, 2, text, usual, padded)
    first, second = (n for n, line in enumerate(text.split("\n")) if " x_row_ptr + offs" in line)
    assert set(found.values()) == {
        f"lines {first} and {second} step through `x` with the row stride of `out`"
    }
    assert len(found) == 1


def test_where_no_edit_mends_a_file_its_launch_is_tried_with_more_programs(submissions, monkeypatch):
    monkeypatch.setattr(
        Search, "mend", lambda search, *_, **__: search._benches[0].score(search._source.text) and None
    )
    monkeypatch.setattr(Search, "mend_first", lambda *_: None)
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(max(n >> 10, 1),)"))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    line = text.split("\n").index("        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)") + 1
    assert set(found.values()) == {f"line {line} launches 64 programs, and 65 are needed (n=65537)"}


def test_where_every_wrong_case_is_too_large_for_edits_a_division_is_rounded_up(submissions):
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(max(n // BLOCK, 1),)"))
    found, _ = causes(submissions, 1, text, *sizes("n=1009,fp32", "n=65537,fp32"))
    line = line_of(text, "n // BLOCK")
    assert set(found.values()) == {f"line {line}: `n // BLOCK` drops the last, partial block"}


def test_an_input_that_was_changed_is_told_with_the_line_that_stores_into_it(submissions):
    text = changed(LAB_1, ("tl.store(out_ptr", "tl.store(x_ptr"))
    (outcome,) = submissions.grade(1, text, *sizes("n=127,fp32")).values()
    line = next(at for at, code in enumerate(text.split("\n"), 1) if "tl.store(x_ptr" in code)
    assert outcome.verdict is Verdict.MUTATED_INPUT
    assert outcome.where == f"x is an input and was changed by the call: line {line} stores into it"


def test_a_mask_is_not_blamed_for_an_input_that_is_overwritten(submissions, monkeypatch):
    """With a mask that lets nothing through the input stays as it was."""
    given, begin = [], Search.__init__

    def searched(search, *arguments, **named):
        begin(search, *arguments, **named)
        given.append(search._edits)

    monkeypatch.setattr(Search, "__init__", searched)
    overwritten = changed(LAB_1, ("tl.store(out_ptr", "tl.store(x_ptr"))
    for text in (overwritten, changed(LAB_1, ("x + y, mask", "x - y, mask"))):
        causes(submissions, 1, text, *sizes("n=127,fp32"))
    of_masks = [[one for one in edits if "mask" in one.kind] for edits in given]
    assert [bool(one) for one in of_masks] == [False, True]


def told_of(submissions, number, text, *cases):
    """What is told of a wrong file while its causes are looked for, in that order, and the causes at last."""
    graded = submissions.grade(number, text, *cases)
    answers = [(submissions.asked[name], outcome, 0.0) for name, outcome in graded.items()]
    told = []
    found = submissions.run.explained(answers, lambda _: None, lambda _, words: told.extend(words))
    return told, {outcome.cause for _, outcome, _ in found if outcome.cause}


@pytest.mark.slow
def test_a_formula_that_the_numbers_follow_is_told_before_edits_are_tried(submissions):
    of_cross_entropy = changed(LAB_2, ("y * (dy - dot)", "y - dy"))
    cases = [f"softmax_backward/rows={size},fp32" for size in ("5,cols=127", "4,cols=129", "29,cols=1001")]
    told, found = told_of(submissions, 2, of_cross_entropy, *cases)
    assert told[0] == "the values in `out` are those of `y - dy`"
    assert told[-1] in found


def test_the_cause_of_a_file_that_fails_is_told_before_others_are_looked_for(submissions):
    fails = changed(LAB_2, ("(dy - dot)", "(dy + dot)"), ("tl.max(x, axis=0)", "tl.maximum(x, axis=0)"))
    told, _ = told_of(submissions, 2, fails, *OF_EACH)
    assert "`axis`" in told[0]


def test_of_several_wrong_cases_the_cheapest_is_tried(submissions, monkeypatch):
    chosen, cheapest = [], Bench.cheapest

    def noted(bench, text):
        at = cheapest(bench, text)
        chosen.append(bench.failing[at].case.name)
        return at

    monkeypatch.setattr(Bench, "cheapest", noted)
    # The smaller one has 64 programs, the larger one two.
    text = changed(
        LAB_1,
        ("x + y, mask", "x - y, mask"),
        (
            "        grid = (triton.cdiv(n, BLOCK),)",
            "        block = 16 if n == 1009 else BLOCK\n        grid = (triton.cdiv(n, block),)",
        ),
        ("BLOCK=BLOCK)", "BLOCK=block)"),
    )
    causes(submissions, 1, text, *sizes("n=1009,fp32", "n=1536,fp16"))
    assert chosen == ["n=1536,fp16"]


def test_of_two_mistakes_the_one_that_an_edit_mends_is_named_where_it_alone_matters(submissions):
    text = changed(LAB_1, ("offs < n", "offs <= n"), ("n, BLOCK=BLOCK)", "n, BLOCK=BLOCK // 2)"))
    found, _ = causes(submissions, 1, text, *sizes(*SIZES))
    small, large = (found[f"elementwise_add/correctness/n={n},fp32"] for n in (127, 65537))
    assert "the comparison `offs <= n` is wrong where both sides are equal" in small
    assert "offs <= n" not in large
    assert re.match(r"line \d+ launches 1 program; with 2 every element is right", large)


LONG_ROWS = [
    f"softmax_forward/{one},fp32"
    for one in (
        "rows=3,cols=16385",
        "rows=2,cols=40000",
        "rows=1,cols=24576",
        "rows=7,cols=20011,values=negative",
    )
]
BOTH = {
    "rows far apart, and a wrong function": (
        2, "34/online_softmax_05_copper", LONG_ROWS,
        "`tl.exp2` is the wrong function",
        "softmax_forward/rows=3,cols=257,x rows far apart,out rows far apart,fp16",
        "`rows[:, None] * stride_x` and `rows[:, None] * stride_y` are computed in int32",
    ),
    "a stride, and a condition that hides a sum": (
        2, "34/online_softmax_12_ribbon", LONG_ROWS,
        "`top > m` is wrong",
        "softmax_forward/rows=29,cols=1001,x padded 24,out padded 7,fp32",
        "steps through `out` with the row stride of `x`",
    ),
    "what lies past the end, and a sum that is not rescaled": (
        2, "32/online_softmax_10_button",
        [f"softmax_forward/rows={one},fp32" for one in ("5,cols=127", "4,cols=129", "29,cols=1001")],
        "masked-off lanes of",
        "softmax_forward/rows=3,cols=16385,fp32",
        "is not rescaled in",
    ),
    "a partial block, and a sum that begins at 0": (
        1, "34/elementwise_add_04_meadow", [f"elementwise_add/n={n},fp32" for n in (1, 7, 127, 129, 1009)],
        "drops the last, partial block",
        "elementwise_add/n=4099,values=edges,fp32",
        "does not belong in",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", BOTH)
def test_each_of_two_mistakes_is_named_where_it_shows(submissions, what):
    number, name, cases, said, other, of_other = BOTH[what]
    text = (BLIND / f"blind_mistakes_{name}.py").read_text()
    right = {1: "elementwise_add/n=1024,fp32", 2: "softmax_forward/rows=5,cols=128,fp32"}[number]
    found, _ = causes(submissions, number, text, *cases, other, right)
    exercise, case = other.split("/")
    assert of_other in found[f"{exercise}/correctness/{case}"], found
    wrong = [one.replace("/", "/correctness/") for one in cases]
    assert any(said in found.get(one, "") for one in wrong), found
    assert all(said in found[one] for one in wrong if one in found), found


@pytest.mark.slow
def test_beside_loads_that_are_seen_to_be_outside_a_second_mistake_is_named(submissions):
    text = (BLIND / "blind_mistakes_15" / "autotuned_matmul_06_helpers.py").read_text()
    cases = [f"matmul_bias_relu/m={m},n={n},k={k},fp32" for m, n, k in ((128, 128, 128), (100, 300, 257))]
    found, _ = causes(submissions, 3, text, *cases, "matmul/m=100,n=300,k=257,fp32")
    plain, inside, outside = found.values()
    assert "what is below 0 is not set to 0 (ReLU) in" in inside
    for cause in (outside, plain):
        assert cause.startswith(f"line {line_of(text, 'return tl.load(ptr + ks')}: the load from `b_ptr`")


def test_what_is_said_of_values_is_not_said_of_elements_that_were_never_written(submissions, monkeypatch):
    said = "the values in `out` are those of `x - y`"
    monkeypatch.setattr(Explainer, "_by_edits", lambda *_, **__: (None, said))
    monkeypatch.setattr(Explainer, "_tried", lambda *_: {})
    text = changed(
        LAB_1, ("x + y, mask", "x - y, mask"), ("(triton.cdiv(n, BLOCK),)", "(max(1, n // BLOCK),)")
    )
    found, _ = causes(submissions, 1, text, *sizes("n=7,fp32", "n=65537,fp32"))
    whole, last = found.values()
    assert whole == said
    assert said not in last


def test_an_output_that_is_not_used_is_told_with_the_cases_in_which_it_is_not(submissions, monkeypatch):
    monkeypatch.setattr(Search, "mend", lambda *_: None)
    monkeypatch.setattr(Search, "mend_first", lambda *_: None)
    text = changed(LAB_2, ("if out is None:", "if out is None or not out.is_contiguous():"))
    names = ("rows=5,cols=127,fp32", "rows=3,cols=2600,out padded 15,fp32", "rows=3,cols=257,OUT")
    names = [name.replace("OUT", "x rows far apart,out rows far apart,fp16") for name in names]
    found, _ = causes(submissions, 2, text, *[f"softmax_forward/{name}" for name in names])
    assert len(found) == 2
    for cause in found.values():
        assert cause.endswith("; wrong only where the rows of `out` are padded"), cause


def test_a_choice_that_any_other_random_numbers_would_mend_has_no_edit(submissions, monkeypatch):
    text = changed(DROPOUT, ("tl.rand4x(seed, counters)", "tl.rand4x(seed, counters // 2)"))
    searched = []
    monkeypatch.setattr(Search, "mend", lambda *_, **__: searched.append(1))
    found, _ = causes(submissions, 4, text, "dropout_forward/n=40003,p=0.5,fp32")
    assert len(found) == 1
    assert not any(cause.startswith("line ") for cause in found.values()), found
    assert not searched


def test_a_rare_wrong_choice_that_other_random_numbers_would_mend_has_no_edit(submissions, monkeypatch):
    text = changed(DROPOUT, ("random >= p", "random >= p + 2e-5"))
    searched = []
    monkeypatch.setattr(Search, "mend", lambda *_, **__: searched.append(1))
    found, _ = causes(submissions, 4, text, "dropout_forward/n=262144,p=0.0,fp32")
    assert len(found) == 1
    assert not searched


def test_a_launch_that_an_experiment_shows_to_be_too_small_is_hardly_searched(submissions, monkeypatch):
    shares, begin = [], Search.__init__

    def noted(search, *asked, **named):
        shares.append(asked[7])
        begin(search, *asked, **named)

    monkeypatch.setattr(Search, "__init__", noted)
    text = changed(LAB_1, ("(triton.cdiv(n, BLOCK),)", "(n // 4096 + 1,)"))
    found, _ = causes(submissions, 1, text, *sizes("n=1009,fp32", "n=65537,fp32"))
    assert shares == [explanation.SHARE_OF_TOLD]
    assert len(found) == 1
    assert all("are needed" in cause or "grid" in cause for cause in found.values())


@pytest.fixture(scope="module")
def two_mistakes():
    """The gradients of LayerNorm with a mistake in dx and one in dweight and dbias, without the operator."""
    (file,) = BLIND.glob("blind_mistakes_7/layer_norm_backward_01_*.py")
    head, _, body = file.read_text().partition("\n")[2].partition("\nGROUPS")
    head = head.replace("from layer_norm import layer_norm_op\n", "")
    return head + "\nGROUPS" + body.partition("\n@triton_op")[0]


OF_GRADIENTS = [f"layer_norm_backward/{one}" for one in ("rows=5,cols=127,fp32", "rows=37,cols=3,fp32")]


@pytest.mark.slow
def test_an_edit_that_makes_one_output_right_is_named_where_the_other_mistake_is_not_found(
    submissions, two_mistakes, monkeypatch
):
    seconds = []

    def none_found(search, first, most, cheapest=False):
        seconds.append((first.line, most == search._one, cheapest))

    monkeypatch.setattr(Search, "_second", none_found)
    found, _ = causes(submissions, 4, two_mistakes, *OF_GRADIENTS)
    # The other mistake is looked for first on top of that edit, with as much work as the first one.
    assert seconds[0] == (45, True, True)
    assert len(found) == 2
    for cause in found.values():
        assert "the factor `load(weight_ptr, cols, N_COLS)` is missing" in cause
        assert cause.endswith(f"with another value there `dx` is right. {explanation.MORE}")


RESCALED = ("d = d * tl.exp(m - shift) + tl.sum", "d = d + tl.sum")


@pytest.mark.slow
def test_a_mistake_of_long_rows_is_looked_for_in_short_ones(submissions, monkeypatch):
    tried = []

    def noted(*asked):
        tried.append(by_smaller_blocks(*asked))
        return tried[-1]

    monkeypatch.setattr(explanation, "by_smaller_blocks", noted)
    text = changed(LAB_2, RESCALED)
    cases = [f"softmax_forward/{name}" for name in (*ROWS, "rows=7,cols=20011,values=ascending,fp32")]
    found, _ = causes(submissions, 2, text, *cases)
    line = text[: text.index(RESCALED[1])].count("\n") + 1
    assert {*found} == {"softmax_forward/correctness/rows=7,cols=20011,values=ascending,fp32"}
    assert all(cause.startswith(f"line {line}: ") for cause in found.values())
    assert [edit.line for repair in tried for edit in repair.edits] == [line]


COUNTED_BY_THE_HOST = (
    ('    BLOCK: tl.constexpr,\n):\n    """y[i', '    n_blocks,\n    BLOCK: tl.constexpr,\n):\n    """y[i'),
    ("0, n_cols, BLOCK):\n        # BEGIN TODO 2", "0, n_blocks * BLOCK, BLOCK):\n        # BEGIN TODO 2"),
    ("out.stride(0), BLOCK=block", "out.stride(0), triton.cdiv(n_cols, FORWARD_BLOCK), BLOCK=block"),
)


def test_what_only_leads_to_smaller_blocks_is_not_named_beside_the_mistake_of_long_rows(
    submissions, monkeypatch
):
    """Smaller blocks are more than the host counts, which is right for the blocks of the file."""

    def of_two(search, *_, **__):
        source = search._source
        pairs = (("n_blocks * BLOCK", "n_cols"), RESCALED[::-1])
        places = [source.text.encode().index(old.encode()) for old, _ in pairs]
        given = zip(places, pairs, ("the end is wrong", "not rescaled"), strict=True)
        return Repair(
            tuple(
                Edit(1, source.text[:at].count("\n") + 1, mistake, (((at, at + len(old)), new),))
                for at, (old, new), mistake in given
            )
        )

    monkeypatch.setattr(Search, "mend", of_two)
    text = changed(LAB_2, *COUNTED_BY_THE_HOST, RESCALED)
    cases = [f"softmax_forward/{name}" for name in (*ROWS, "rows=7,cols=20011,values=ascending,fp32")]
    found, _ = causes(submissions, 2, text, *cases)
    line = line_of(text, RESCALED[1])
    assert list(found.values()) == [f"line {line}: not rescaled"]


def test_smaller_blocks_are_those_of_the_launch_and_edits_go_back():
    source = Source(LAB_2)
    small = smaller_blocks(source, "softmax_forward")
    assert small.text.count("), 16)") == len(small.added) // 2 > 0
    name = next(
        node for node in ast.walk(ast.parse(small.text)) if isinstance(node, ast.Name) and node.id == "out"
    )
    edit = Edit.of_node(Source(small.text), 1, name, "other", "")
    assert source.with_replaced(small.in_the_file(edit).parts).count("other") == LAB_2.count("other") + 1
    begin, end = small.added[0]
    assert small.in_the_file(Edit(1, 1, "", (((begin, end), ""),))) is None


def test_what_only_a_case_of_a_few_elements_shows_is_no_cause_where_others_fail(submissions):
    file = BLIND / "blind_mistakes_27/layer_norm_02_lantern.py"
    cases = [f"layer_norm_forward/{one}" for one in ("rows=1,cols=1,fp32", "rows=5,cols=127,fp32")]
    found, begun = causes(submissions, 4, file.read_text(), *cases)
    assert begun == ["layer_norm_forward"]
    assert len(found) == 2
    assert not any("are exchanged" in cause for cause in found.values())


@pytest.mark.parametrize(
    ("file", "number", "cases", "said"),
    [
        pytest.param(
            "47/elementwise_add_41_tansy",
            1,
            [f"elementwise_add/n={n},fp32" for n in (127, 1009, 2048, 65537, 1048579)],
            "`pid * per_program + rest` goes `rest` further for every program",
            id="shares-of-which-some-have-one-more",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "47/online_softmax_40_kestrel",
            2,
            ("softmax_forward/rows=3,cols=2,fp32", "softmax_forward/rows=5,cols=127,fp32"),
            "`tl.reduce` needs an associative function, and `join` is not",
            id="a-function-of-a-reduction",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "48/layer_norm_67_slate",
            4,
            [f"layer_norm_forward/rows={one},fp32" for one in ("5,cols=127", "4,cols=129", "3,cols=16385")],
            "is run once, before the loop, and loads its first block only (and so in line",
            id="two-vectors-that-are-loaded-once",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "28/online_softmax_31_bridge",
            2,
            (
                "softmax_backward/rows=3,cols=2,fp32",
                "softmax_backward/rows=3,cols=257,dy rows far apart,y rows far apart,out rows far apart,fp16",
                "softmax/rows=4,cols=129,fp32",
            ),
            "`x` is the wrong value in `ctx.save_for_backward(x)`",
            id="what-it-calls-is-right-where-plain",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "28/autotuned_matmul_10_window",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul_bias_relu/m=128,n=128,k=128,fp32"),
            "`acc` lacks the term `shift` in `tl.where(acc + shift > 0, acc, 0.0)`",
            id="the-sum-in-place-of-its-operand",
        ),
        pytest.param(
            "28/autotuned_matmul_24_pebble",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=129,n=127,k=200,b transposed,fp32"),
            "the two entries of `(BLOCK_N, BLOCK_K)` are exchanged",
            id="where-unlike-operands-of-a-product-come-from",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "28/autotuned_matmul_28_saddle",
            3,
            (
                "matmul/m=128,n=128,k=128,fp32",
                "matmul_bias_relu/m=128,n=128,k=128,fp32",
                "matmul_bias_relu/m=128,n=128,k=128,fp16",
                "matmul_bias_relu/m=100,n=300,k=257,fp16",
            ),
            "the conversion in `acc.to(c_ptr.dtype.element_ty)` loses digits",
            id="a-second-mistake-where-the-first-is-known",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "28/online_softmax_11_garnet",
            2,
            (
                "softmax_forward/rows=5,cols=127,fp32",
                "softmax_forward/rows=149,cols=3,fp32",
                "softmax_forward/rows=29,cols=1001,x padded 24,out padded 7,fp32",
            ),
            "set once, before the loop of line 20, and must be set in each iteration",
            id="what-inner-loops-go-on-with",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "28/softmax_03_copper",
            4,
            (
                "fused_softmax/rows=4,cols=129,fp32",
                "fused_softmax/rows=5,cols=144,x padded 8,dy step 2,fp16",
            ),
            "`dy.stride(0) >= dy.shape[1]` is the wrong condition for a contiguous copy",
            id="the-condition-of-a-copy",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "29/autotuned_matmul_10_copper",
            3,
            (
                "matmul_bias_relu/m=128,n=128,k=128,fp32",
                "matmul_bias_relu/m=19,n=21,k=40,a step 2,b step 2,out transposed,fp32",
            ),
            "chooses what is wrong",
            id="a-way-that-host-code-chooses",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "29/autotuned_matmul_22_meadow",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=129,n=127,k=200,b transposed,fp32"),
            "must be set anew behind line 90",
            id="what-a-finished-tile-leaves",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "29/autotuned_matmul_26_violet",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=129,n=127,k=200,b transposed,fp32"),
            "puts every second element beside the one before it",
            id="halves-of-a-block",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "29/elementwise_add_03_pebble",
            1,
            [f"elementwise_add/n={n},fp32" for n in (127, 128, 512, 1024, 2048, 65537)],
            "`n % 16` asks for multiples of 16, and a whole block has more",
            id="a-condition-that-a-kernel-gets-as-a-constant",
        ),
        pytest.param(
            "36/elementwise_add_08_saddle",
            1,
            [f"elementwise_add/n={n},fp32" for n in (1, 127, 129)],
            "`offs // VEC * VEC` rounds `offs` down to a multiple of `VEC`",
            id="a-mask-that-is-rounded-down",
        ),
        pytest.param(
            "36/elementwise_add_06_anchor",
            1,
            [f"elementwise_add/n={n},fp32" for n in (7, 127, 128, 129, 1009)],
            "in `tail.bit_length() - 1`",
            id="an-exponent-one-too-low",
        ),
        pytest.param(
            "38/elementwise_add_11_orchard",
            1,
            [f"elementwise_add/n={n},fp32" for n in (1, 127, 1009)],
            "counts its lanes from 1, and not from 0",
            id="lanes-from-1",
        ),
        pytest.param(
            "38/elementwise_add_13_button",
            1,
            [f"elementwise_add/n={n},fp32" for n in (1, 127, 1009, 65537)],
            "`y_at` is not moved on in the loop, as `x_at` is",
            id="a-pointer-that-is-not-moved-on",
        ),
        pytest.param(
            "38/autotuned_matmul_27_pebble",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=100,n=300,k=257,fp32"),
            "takes fp32 as TF32",
            id="a-product-in-tf32",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "38/autotuned_matmul_32_anvil",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=24,n=16,k=4096,fp16"),
            "`low` is not added to `lanes`, as it is in line",
            id="a-term-as-elsewhere",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "36/autotuned_matmul_11_thimble",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=129,n=127,k=200,b transposed,fp32"),
            "`bias is not None` is asked after line 79 has given `bias` another value",
            id="a-name-that-has-another-value",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "36/autotuned_matmul_07_anchor",
            3,
            ("matmul/m=128,n=128,k=128,fp32", "matmul/m=129,n=127,k=200,b transposed,fp32"),
            "the parameters for `*b.stride()` are `stride_bn` and `stride_bk`",
            id="strides-in-the-other-order",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "37/online_softmax_51_harbor",
            2,
            ("softmax_backward/rows=3,cols=2,fp32", "softmax_backward/rows=5,cols=127,fp32"),
            "`tl.sum(acc, axis=0)` takes the wrong axis",
            id="a-reduction-with-its-new-axis",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "37/online_softmax_44_anchor",
            2,
            [
                f"softmax_forward/{one},fp32"
                for one in ("rows=1,cols=1", "rows=5,cols=127", "rows=149,cols=3")
            ],
            "`n_rows // programs` drops the last, partial block",
            id="rows-of-a-program-rounded-down",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_mistakes_of_others_that_were_not_named(submissions, file, number, cases, said):
    text = (BLIND / f"blind_mistakes_{file}.py").read_text()
    found, _ = causes(submissions, number, text, *cases)
    assert any(said in cause for cause in found.values()), found


@pytest.mark.slow
def test_programs_that_store_the_same_elements_are_not_too_few(submissions):
    text = (BLIND / "blind_mistakes_28/autotuned_matmul_12_meadow.py").read_text()
    cases = [f"matmul/{one}" for one in ("m=128,n=128,k=128,fp32", "m=33,n=65,k=17,b transposed,no out,fp32")]
    found, _ = causes(submissions, 3, text, *cases)
    assert len(found) == 2
    assert not any("are needed" in cause for cause in found.values())


def _case(values):
    return Case({"rows": 2, "cols": 3} | ({"values": values} if values else {}), "fp32")


@pytest.mark.parametrize(
    ("failing", "passing", "shows"),
    [
        ([None, "constant"], [None], True),
        (["constant"], [None], False),
        (["constant"], ["ascending"], True),
        (["constant"], [], True),
    ],
)
def test_results_of_unusual_values_alone_show_no_formula(failing, passing, shows):
    assert _shows_a_formula([*map(_case, failing)], [*map(_case, passing)]) is shows
