"""Which searches are begun."""

import time
from types import SimpleNamespace

import pytest

from grader.judge.repair.edit import Edit
from grader.judge.repair.search import FEWEST_TRIES, Search
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
    one._end = time.monotonic() + left_s
    return one


def test_a_second_search_is_begun_where_its_work_is_enough_for_a_few_tries():
    edit = Edit(1, 1, "a mistake", (((4, 5), "2"),))
    with pytest.raises(BegunError):
        search(50)._second(edit, 50 * FEWEST_TRIES)
    assert search(51)._second(edit, 50 * FEWEST_TRIES) is None
    assert search(50, left_s=-1.0)._second(edit, 50 * FEWEST_TRIES) is None
