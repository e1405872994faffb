"""First lines of specimens name known verdicts, and `make test` runs one specimen of every kind."""

import dataclasses

import pytest

from grader.course import catalog
from grader.course.parts import parts_of
from grader.course.submission import Submission
from grader.screen import file_check
from grader.screen.screen import screen
from grader.tests.helpers.course import ROOT
from grader.tests.whole.everyday import (
    CORPORA,
    kinds,
    listed,
    on,
    path_of,
    unknown_labels,
    without_example,
)

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


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_expected_label_is_a_known_verdict_with_a_known_reason(corpus):
    found = {path_of(one): unknown_labels(one) for one in CORPORA[corpus]}
    assert {path: labels for path, labels in found.items() if labels} == {}


@pytest.mark.parametrize("label", ["RIGHT", "TIMEOUT/TUNE", "POLICY/INTERFERENCE", "UNWRITTEN", "WRONG/SLOW"])
@pytest.mark.parametrize("way", ["screened", "unscreened"])
def test_an_unknown_label_is_noticed(label, way):
    known = CORPORA["cheats"][0]
    assert unknown_labels(dataclasses.replace(known, **{way: ("WRONG/UNWRITTEN", label, "SLOW")})) == [label]


def test_the_first_line_of_a_cheat_says_what_the_screen_alone_says_of_it():
    entries, other = [*catalog.find(), *catalog.capstone()], {}
    for specimen in CORPORA["cheats"]:
        if specimen.file.suffix == ".cu" or specimen.path.is_dir():
            continue  # the compiler, or what lies beside the file, has a say in these
        for name in specimen.functions:
            entry, asked = next((e, x) for e in entries for x in e.lab.exercises if x.name == name)
            submission, beside = Submission.read(specimen.file), ROOT / "solutions" / entry.folder.name
            files = entry.lab.imports.get(asked.file, ())
            parts = parts_of(submission, files, lambda path, at=beside: Submission.read(at / path.name))
            outcome = file_check.check(submission, asked) or screen(submission, entry.lab, asked, parts)
            label = outcome.label if outcome else "permitted"
            if (label == "POLICY") != ("POLICY" in specimen.screened):
                other[specimen.name] = (label, specimen.screened)
    assert other == {}
