"""The list of specimens that `make test` runs names files that are there, and one of every kind."""

import pytest

from grader.tests.whole.everyday import CORPORA, kinds, listed, on, path_of, without_example

ON_CPU = {corpus: on("CPU", specimens) for corpus, specimens in CORPORA.items()}


def test_every_path_is_that_of_a_specimen_which_a_cpu_shows_and_stands_there_once():
    known = {path_of(one) for specimens in ON_CPU.values() for one in specimens}
    assert set(listed()) <= known
    assert len(listed()) == len(set(listed()))


def test_the_list_has_an_example_of_every_kind_in_every_corpus():
    assert without_example(ON_CPU, listed()) == {}


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_corpus_without_its_examples_is_noticed(corpus):
    others = set(listed()) - {path_of(one) for one in CORPORA[corpus]}
    missing = without_example(ON_CPU, others)
    assert {name for name, _ in missing} == {corpus}
    assert {kind for _, kind in missing} == set().union(*map(kinds, ON_CPU[corpus]))
