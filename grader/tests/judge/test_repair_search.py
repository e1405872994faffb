"""Which searches are begun."""

import math
import time
from types import SimpleNamespace

import pytest

from grader.judge.repair.bench import Observed
from grader.judge.repair.edit import OUT_OF_LOOP, Edit
from grader.judge.repair.search import FEWEST_TRIES, Mend, Repair, Search, _most_first
from grader.judge.repair.source import Source


class BegunError(Exception):
    pass


def search(work, left_s=60.0):
    """A search whose calls do so much work each; the preparations of a second search raise BegunError."""

    def worst(*_):
        raise BegunError

    one = Search.__new__(Search)
    one._benches = [SimpleNamespace(work=lambda: work, worst=worst)]
    one._source = Source("a = 1\n")
    one._until = time.monotonic() + left_s
    return one


def test_of_two_edits_that_mend_the_same_the_one_of_a_single_place_is_named():
    several = Edit(
        1, 44, "`rstd` is not laid along an axis of the block (and so in line 49)", (((4, 5), "2"),)
    )
    one = Edit(2, 70, "`tl.sum(dweight, axis=0)` takes the wrong axis", (((4, 5), "3"),))
    mends = [Mend(edit, frozenset({0}), is_all=True, lanes=1) for edit in (several, one)]
    assert min(mends, key=_most_first).edit is one


def test_a_statement_that_only_comes_too_early_is_not_said_to_run_too_often():
    out_of_loop = Edit(2, 40, f"`x = y` runs in each iteration of the loop of line 34, {OUT_OF_LOOP}", ())
    order = Edit(3, 40, "`x = y` comes before `tl.store(p, x)`, which must come first", ())
    mends = [Mend(out_of_loop, frozenset({0}), True, 5), Mend(order, frozenset({0}), True, 9)]
    assert min(mends, key=_most_first).edit is order


def test_a_second_search_is_begun_where_its_work_is_enough_for_a_few_tries():
    edit = Edit(1, 1, "a mistake", (((4, 5), "2"),))
    with pytest.raises(BegunError):
        search(50)._second(edit, 50 * FEWEST_TRIES)
    assert search(51)._second(edit, 50 * FEWEST_TRIES) is None
    assert search(50, left_s=-1.0)._second(edit, 50 * FEWEST_TRIES) is None


def test_an_edit_that_mends_some_cases_is_told_before_a_second_one_is_looked_for(monkeypatch):
    edit, told = Edit(1, 1, "a mistake", (((4, 5), "2"),)), []
    one, seen = search(50), []
    one._one, one._tell = 100, told.append
    vars(one._benches[0]).update(
        cheapest=lambda _: 0,
        leaves_only_told=lambda _: False,
        is_most=lambda _: True,
        leaves_near=lambda *_: False,
    )
    for name, result in {
        "_aim": 0.5,
        "_reached": [],
        "_of_its_own": None,
        "_sweep": ([Mend(edit, frozenset({0, 1}), is_all=False, lanes=1)], []),
        "_for_some": Repair((edit,), frozenset({"a", "b"})),
    }.items():
        monkeypatch.setattr(Search, name, lambda *_, found=result: found)
    monkeypatch.setattr(Search, "_second", lambda *_, **__: seen.append([*told]))
    assert one.mend() == Repair((edit,), frozenset({"a", "b"}))
    assert seen == [[edit]]


TWO = """LIMIT = 4


@triton.jit
def shared(x):
    return x + LIMIT


@triton.jit
def first(x):
    return shared(x) * 2


@triton.jit
def second(x):
    return shared(x) * 3
"""


def edit_of(*places):
    """An edit of TWO that puts a 0 in some places, each given by the text that begins there."""
    at = [TWO.index(place) for place in places]
    return Edit(1, 1, "a mistake", tuple(((one, one + 1), "0") for one in at))


OF_THE_MODULE, OF_SHARED = edit_of("4"), edit_of("LIMIT\n\n")
OF_FIRST, OF_BOTH = edit_of("2"), edit_of("2", "3")
OWN = [edit_of(place) for place in ("return shared(x) * 3", "shared(x) * 3", "3")]


def search_of(name, *edits):
    """A search for a function of TWO."""
    one = Search.__new__(Search)
    one._source, one._name, one._edits = Source(TWO), name, edits
    return one


def test_an_exercise_runs_its_own_code_and_what_that_calls_and_that_of_the_module():
    edits = [OF_THE_MODULE, OF_SHARED, OF_FIRST, OF_BOTH, *OWN]
    assert search_of("first")._reached(edits) == edits[:4]
    assert search_of("second")._reached(edits) == [OF_THE_MODULE, OF_SHARED, OF_BOTH, *OWN]


@pytest.mark.parametrize(
    ("right", "most", "is_found"),
    [({"first"}, 3, True), ({"first"}, 2, False), (set(), 3, False)],
    ids=["a little", "much", "nothing is right"],
)
def test_two_edits_are_tried_together_of_a_little_code_that_nothing_right_runs(
    monkeypatch, right, most, is_found
):
    monkeypatch.setattr("grader.judge.repair.search.MOST_OWN", most)
    one, tried = search_of("second", OF_THE_MODULE, OF_SHARED, OF_FIRST, OF_BOTH, *OWN), []
    one._right, one._one, one._took, one._until = right, 100, 1, math.inf

    def try_all(edits, before, *_):
        tried.append((before, edits))
        is_mended = before == OWN[1].parts and OWN[2] in edits
        return [Mend(OWN[2], frozenset({0}), True, 1)] if is_mended else [], []

    one._try_all = try_all
    assert one._of_its_own(0.5) == (Repair((OWN[1], OWN[2])) if is_found else None)
    every = [((), OWN), (OWN[0].parts, OWN[1:]), (OWN[1].parts, OWN[2:])]
    assert tried == (every if is_found else [])


FAILS = """
@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.sum(tl.load(x_ptr), axis=1))


def sums(x):
    kernel[(1,)](x, BLOCK=64)


def function(x):
    return sums(x)
"""


@pytest.mark.parametrize(
    ("errors", "launches", "goes_around"),
    [
        ([(4, 8, 12)], [20], True),  # the kernel of line 8 fails, and does not run with the edit
        ([(4, 8, 12)], [8], False),
        ([(12,)], [20], False),  # host code fails: no launch is known
        ([()], [20], False),
    ],
)
def test_an_edit_with_which_the_kernel_that_failed_does_not_run_goes_around(errors, launches, goes_around):
    one = Search.__new__(Search)
    one._source, one._seen = Source(FAILS), Observed()
    one._launching = one._that_launch(errors)
    edit = Edit(1, 12, "a mistake", (((4, 5), "2"),))
    assert one._as_seen(edit, launches, ()).goes_around is goes_around
