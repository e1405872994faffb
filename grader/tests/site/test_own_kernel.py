"""A student's own kernel as a page: what it says, where it opens, and what cannot be shown."""

import json
import re

import pytest
from click.testing import CliRunner

from grader.cli.main import main
from grader.course import catalog
from grader.site.figures.own_kernel import NotShownError, show, sizes_of

ADD = "lab1_elementwise_add/elementwise_add.py"
SOFTMAX = "lab2_online_softmax/online_softmax.py"
MATMUL = "lab3_autotuned_matmul/autotuned_matmul.py"
BLOCKS = 4


def entry_of(number):
    return next(one for one in catalog.find() if one.number == number)


def exercise_of(entry, name):
    return next(one for one in entry.lab.functions if one.name == name)


@pytest.fixture
def shown(tmp_path):
    """Shows a function of a solution after `changes` to its text; the page's data, its words, the file."""

    def of(file, name, changes=(), blamed=0, block=BLOCKS, **sizes):
        number = int(re.match(r"lab(\d)", file)[1])
        entry = entry_of(number)
        text = (catalog.ROOT / "solutions" / file).read_text("utf-8")
        for before, after in changes:
            assert before in text, before
            text = text.replace(before, after)
        path = tmp_path / file.rpartition("/")[2]
        path.write_text(text, "utf-8")
        exercise = exercise_of(entry, name)
        found = show(entry, exercise, path, sizes_of(exercise, sizes), block, blamed)
        data = json.loads(re.search(r'id="data">(.*?)</script>', found.html, re.DOTALL)[1])
        return data, found.words

    return of


def opened(data):
    """The step at which a page opens, and its program's id."""
    start = data["start"]
    case = data["cases"][start["size"]]
    return case["programs"][start["pid"]][start["step"]], case["names"][start["pid"]]


@pytest.mark.parametrize(
    ("file", "name", "sizes", "programs"),
    [
        (ADD, "elementwise_add", {}, 3),
        (ADD, "elementwise_add", {"n": 8}, 2),
        (SOFTMAX, "softmax_forward", {"rows": 2, "cols": 7}, 2),
        (SOFTMAX, "softmax_backward", {}, 3),
        (MATMUL, "matmul", {}, 6),
        (MATMUL, "matmul_bias_relu", {"m": 4, "n": 4, "k": 9}, 1),
    ],
)
def test_the_solutions_are_right_and_touch_nothing_outside(shown, file, name, sizes, programs):
    data, words = shown(file, name, **sizes)
    steps = [step for case in data["cases"] for program in case["programs"] for step in program]
    assert [len(case["programs"]) for case in data["cases"]] == [programs]
    assert any(step["accesses"] for step in steps)
    assert not any("outside" in one for step in steps for one in step["accesses"])
    assert re.fullmatch(r"All \d+ elements of out are right\.", words[1]), words


def test_a_page_opens_at_the_first_access_outside_of_a_tensor(shown):
    data, words = shown(
        ADD, "elementwise_add", [("x = tl.load(x_ptr + offs, mask=mask)", "x = tl.load(x_ptr + offs)")]
    )
    step, program = opened(data)
    assert program == "2"
    assert step["accesses"][0]["outside"] == [False, False, True, True]
    assert step["changed"]["x"] == ["9", "10", "?", "?"]
    assert step["words"].endswith("Lanes 2 and 3 read elements 10 and 11, outside of x_ptr.")
    assert words[-1] == f"Line {step['lines'][0]}, program 2: reads outside of x_ptr."


def test_an_address_far_outside_is_told_to_be_of_its_tensor_and_not_touched(shown):
    data, _ = shown(
        ADD, "elementwise_add", [("x_ptr + offs, mask=mask", "x_ptr + offs + (1 << 40), mask=mask")]
    )
    access = opened(data)[0]["accesses"][0]
    assert access["buffer"] == "x_ptr"
    assert access["offsets"][0] == 1 << 40


def test_wrong_elements_are_counted_and_the_first_is_named(shown):
    _, words = shown(ADD, "elementwise_add", [("offs = pid * BLOCK + tl.arange", "offs = tl.arange")])
    assert words[1] == "6 of 10 elements of out are wrong. The first is out[4]: never written, expected 55."


def test_a_page_opens_at_the_line_that_is_to_blame(shown):
    source = (catalog.ROOT / "solutions" / SOFTMAX).read_text("utf-8").splitlines()
    line = next(at for at, text in enumerate(source, 1) if text.strip().startswith("d = d *"))
    data, words = shown(SOFTMAX, "softmax_forward", blamed=line)
    step, program = opened(data)
    assert step["lines"][0] <= line <= step["lines"][1]
    assert (program, words[-1]) == ("0", f"It opens at line {line}.")


def test_a_page_opens_where_the_call_ended_with_an_error(shown):
    data, words = shown(
        ADD, "elementwise_add", [("tl.store(out_ptr + offs, x + y", "tl.store(out_ptr + offs, x + z")]
    )
    assert "store" in opened(data)[0]["phases"]
    assert words[1].startswith("NameError")
    assert words[2].startswith("The call ended at line ")


def test_programs_of_two_axes_have_two_numbers(shown):
    changes = [
        ("tl.program_id(axis=0)", "(tl.program_id(axis=1) * 2 + tl.program_id(axis=0))"),
        ("grid = (triton.cdiv(n, BLOCK),)", "grid = (2, triton.cdiv(n, 2 * BLOCK))"),
    ]
    data, _ = shown(ADD, "elementwise_add", changes)
    assert sorted(data["cases"][0]["names"]) == ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]


@pytest.mark.parametrize(
    ("changes", "sizes", "words"),
    [
        ([("BLOCK=BLOCK", "BLOCK=128")], {}, "a block has 128 lanes"),
        (
            [("tl.store(", 'tl.static_assert(False, "TODO 2: load")\n    tl.store(')],
            {"n": 0},
            "nothing to show",
        ),
        ([], {"n": 10_000}, "choose a smaller one"),
        ([("def elementwise_add(", "def another(")], {}, "nothing to show: AttributeError"),
        ([("import torch\n", "import torch\nimport os; os._exit(3)\n")], {}, "ended Triton's interpreter"),
    ],
)
def test_what_cannot_be_shown_says_why(shown, changes, sizes, words):
    with pytest.raises(NotShownError, match=words):
        shown(ADD, "elementwise_add", changes, **sizes)


def test_the_command_writes_a_page_and_names_what_there_is_to_choose_from(tmp_path):
    asked = ["show", "--lab", "1", "--from", str(catalog.ROOT / "solutions"), "--results", str(tmp_path)]
    done = CliRunner().invoke(main, [*asked, "--n", "7"])
    assert done.exit_code == 0, done.output
    assert "n=7, BLOCK = 4: 2 programs." in done.output
    assert "<title>Lab 1: your elementwise_add</title>" in (tmp_path / "show.html").read_text("utf-8")
    wrong = CliRunner().invoke(main, [*asked, "--size", "m=7"])
    assert (wrong.exit_code, "it has n" in wrong.output) == (2, True)
    wrong = CliRunner().invoke(main, [*asked, "-k", "softmax"])
    assert (wrong.exit_code, "there are elementwise_add" in wrong.output) == (2, True)
