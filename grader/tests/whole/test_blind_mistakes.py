"""Mistakes and right answers by somebody who has not seen the grader: what a CPU says of them.

Line one of a file names the file it stands for, its kind and what is wrong with it.
"""

import re

import pytest

from grader.course import catalog
from grader.course.specimens import Specimen
from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.helpers.course import ROOT
from grader.tests.whole.corpus import Examiner

# Those in CUDA C++ need a GPU.
FILES = sorted((ROOT / "grader/tests").glob("blind_mistakes_*/*_[0-9][0-9]_*.py"))
# What each shows that no case showed before: the input or the check by which it is found.
FOUND_BY = {
    "add_06_accumulator_from_zero": ("values that are -0.0", "WRONG"),
    "add_09_n_to_int64": ("an integer argument that is 1", "CRASHED"),
    "autotuned_matmul_07_grid_two_axes": ("out with a column stride", "WRONG"),
    "autotuned_matmul_08_even_k": ("a size that is a multiple of 16 and of no block", "OUT_OF_BOUNDS"),
    "dropout_02_quarters": ("the choice of another config", "WRONG"),
    "layer_norm_backward_02_chunks": ("more rows than groups, and no multiple of them", "WRONG"),
    "softmax_02_floor": ("rows far below 0", "WRONG"),
    "autotuned_matmul_08_persistent": ("more tiles than programs", "WRONG"),
    "autotuned_matmul_06_grouped": ("a last group of fewer rows of tiles", "WRONG"),
    "layer_norm_backward_02_share_of_tiles": ("tiles of rows that groups leave over", "WRONG"),
    "add_rms_norm_02_half_squares": ("squares that leave the range of fp16", "WRONG"),
    "dropout_02_savedresult": ("an x of which half the elements are 0", "WRONG"),
    "dropout_05_oneapply": ("what is returned in evaluation", "WRONG"),
    "layer_norm_05_shortnames": ("rows apart where no out is passed", "WRONG"),
    "online_softmax_06_chunks": ("more rows than programs in backward", "WRONG"),
    "rms_norm_backward_03_template": ("eps = 0 in backward", "WRONG"),
    "swiglu_02_blocks": ("whole blocks in more than one row", "WRONG"),
    "elementwise_add_04_twolaunches": ("a size of exactly one block", "WRONG"),
    "autotuned_matmul_13_layouts": ("a transposed a where no out is passed", "WRONG"),
    "swiglu_02_even": ("rows that are whole blocks only together", "OUT_OF_BOUNDS"),
    "elementwise_add_12_empty": ("another tensor in place of an empty out", "WRONG"),
    "layer_norm_linear_backward_03_frugal": ("one gradient at a time", "CRASHED"),
    "online_softmax_07_exp2": ("values far from 0 that differ by little", "WRONG"),
    "softmax_02_binary": ("values far from 0 that differ by little", "WRONG"),
    "online_softmax_11_loader": ("a row of six blocks", "CRASHED"),
    "online_softmax_06_blocks2d": ("rows beyond 2^31 elements in forward", "OUT_OF_BOUNDS"),
    "layer_norm_03_brief": ("fp16 far from 0, where a mean has few digits", "WRONG"),
    "dropout_02_sixteen": ("a small p, and many elements", "WRONG"),
}


def functions_of(file):
    """The lab and the functions that a file answers."""
    where, _, _ = re.sub(r"^(#|//) ", "", file.read_text("utf-8")).partition(" | ")
    folder, _, name = where.rpartition("/")
    for entry in (*catalog.find(), *catalog.capstone()):
        names = [one.name for one in entry.lab.functions if one.file.endswith(name)]
        if names and entry.folder.name.startswith(folder.rpartition("/")[2]):
            return names
    raise LookupError(f"{file.name}: no lab has {where}")


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    examiner = Examiner(tmp_path_factory.mktemp("blind"), "cpu")
    yield examiner
    examiner.close()


def outcomes(examiner, file, expected):
    """What each function of a file gets: the first outcome that is not PASS, or the last."""
    names = functions_of(file)
    specimen = Specimen(file, file, expected, expected, tuple(names), "correctness", None, "", "", "")
    return {name: examiner.grade(specimen, name) for name in names}


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_mistake_in_a_corner_is_found_on_a_cpu(cpu, name):
    file = next(one for one in FILES if one.stem == name)  # of the earliest set, where two have it
    found = outcomes(cpu, file, ("",))
    told = {function: f"{one.label}: {one.where} | {one.pattern}" for function, one in found.items()}
    assert FOUND_BY[name][1] in {one.verdict.value for one in found.values()}, told


def is_right(file):
    return file.read_text("utf-8").partition("\n")[0].split(" | ")[1] in ("honest", "right")


# Those of one set in CI, of all sets at night.
HONEST = [
    pytest.param(
        one, id=one.stem, marks=pytest.mark.slow if one.parent.name.endswith("_1") else pytest.mark.nightly
    )
    for one in FILES
    if is_right(one)
]


@pytest.mark.parametrize("file", HONEST)
def test_a_right_answer_of_another_form_passes(cpu, file):
    found = outcomes(cpu, file, ("PASS",))
    assert {one.label for one in found.values()} == {"PASS"}, [
        f"{function}: {one.label} {one.where} {one.printed[-300:]}" for function, one in found.items()
    ]


def test_there_are_right_answers_to_look_at():
    assert len(HONEST) > 60


@pytest.mark.slow
def test_edits_of_some_of_the_files_can_be_made():
    """One edit that cannot be made would end the search, and a message say what the symptom suggests."""
    made = 0
    some = FILES[::40]
    for file in some:
        try:
            source = Source("#" + file.read_text().partition("\n")[2])
        except SyntaxError:
            continue
        for name in functions_of(file):
            made += len(candidates(source, name)) > 0
    assert made > len(some) / 2
