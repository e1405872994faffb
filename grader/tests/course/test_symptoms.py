"""Symptoms of a lab: a misspelt one is refused, a lab adds its own, and each of these has a cause."""

import json

import pytest

from grader.course import catalog
from grader.course.spec import Reason
from grader.course.symptoms import Symptom

LAB = '''\
"""A lab with one exercise."""

from grader.course.spec import Case, Exercise, Lab, Tolerance
from grader.course.symptoms import LabSymptom, Symptom


class Mistake(LabSymptom):
    COUNTED = "counted"
    MEANS = "means"


LAB = Lab(
    title="row sum",
    exercises=(
        Exercise("row_sum", "row_sum.py", 10, None, None, None, Tolerance(None), (Case({"n": 7}),)),
    ),
    causes=CAUSES,
)
'''


def lab_with(folder, causes):
    """A lab that is found in `folder`, with these causes as its lab.py writes them."""
    file = folder / "lab9_row_sum" / "lab.py"
    file.parent.mkdir()
    file.write_text(LAB.replace("CAUSES", causes))
    return catalog.load(file).lab


@pytest.mark.parametrize(
    ("causes", "words"),
    [
        ('{"nothing writen": (1, "look")}', r"'nothing writen' .* did you mean Symptom\.NOTHING_WRITTEN\?"),
        ('{"nothing written": (1, "look")}', r"'nothing written' .* did you mean Symptom\.NOTHING_WRITTEN\?"),
        ('{"quite another": (1, "look")}', r"'quite another' is neither a Symptom nor a LabSymptom$"),
        ('{None: (1, "look")}', "None is neither a Symptom"),
        ('{Symptom.NOTHING_WRITEN: (1, "look")}', "NOTHING_WRITEN"),
        ('{Mistake.MEAN: (1, "look"), Mistake.COUNTED: (1, "look")}', "MEAN"),
    ],
    ids=[
        "misspelt words",
        "words",
        "other words",
        "nothing",
        "misspelt member",
        "misspelt member of the lab",
    ],
)
def test_a_misspelt_symptom_is_refused_with_its_name(tmp_path, causes, words):
    with pytest.raises(ValueError, match=rf"lab9_row_sum/lab\.py:\d+: .*{words}"):
        lab_with(tmp_path, causes)


def test_each_symptom_that_a_lab_declares_needs_a_cause(tmp_path):
    with pytest.raises(ValueError, match=r"row sum: Mistake\.MEANS has no cause"):
        lab_with(tmp_path, '{Symptom.WRONG: (1, "look"), Mistake.COUNTED: (1, "look")}')


def test_causes_are_found_by_symptoms_of_the_grader_and_of_the_lab(tmp_path):
    causes = '{Symptom.WRONG: (1, "a"), Mistake.COUNTED: (2, "b"), Mistake.MEANS: (3, "c")}'
    lab = lab_with(tmp_path, causes)
    assert {str(symptom): hint for symptom, (hint, _) in lab.causes.items()} == {
        "wrong": 1,
        "counted": 2,
        "means": 3,
    }


@pytest.mark.parametrize("one", [Symptom.NOTHING_WRITTEN, Reason.UNWRITTEN, Reason.NONE], ids=repr)
def test_text_and_json_have_the_value_on_every_python(one):
    assert (f"{one}", str(one), json.loads(json.dumps(one))) == (one.value,) * 3
