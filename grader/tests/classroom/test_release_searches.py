"""Two searches for answers: each finds the known leaks, and honest texts pass."""

import ast
import json
import re
import subprocess
import sys

import pytest

from grader.classroom.release import exemptions as lists
from grader.classroom.release import token_search
from grader.classroom.release.answers import collect
from grader.classroom.release.contents import File, choose
from grader.classroom.release.exemptions import exemptions, unused, without_exempted, without_lines
from grader.classroom.release.source import git
from grader.classroom.release.withheld import answer_in, hold_back
from grader.tests.classroom.leak_recipes import CASES, written
from grader.tests.classroom.release_trees import lying
from grader.tests.helpers.course import ROOT

# The last tree whose release held the two leaks; a shallow clone does not have it.
LEAKED = "19604814053b"
LIST_OF_ITS_TIME = "b7aefae"  # whose exemptions name files of lab 4 that are gone
LAB3 = "solutions/lab3_autotuned_matmul/autotuned_matmul.py"
# What the first search is not made for: other names, and other columns.
BEYOND_LETTERS = {"identifiers renamed", "list of tiles, other order of columns"}
ORDER = '''@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr = 8):
    """First row and first column of a tile, in the grouped order of lab 3."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return (first + tile % per_group % height) * BLOCK_M, tile % per_group // height * BLOCK_N
'''
GIVEN = "# GIVEN: nothing to complete here; layer_norm_linear.py imports it.\n\nimport triton\n\n\n"
LISTED = re.findall(r"^    _config\((.+)\),$", (ROOT / LAB3).read_text("utf-8"), re.MULTILINE)
TRACE = [
    f"Autotuning kernel matmul_kernel with config BLOCK_M: {m}, BLOCK_N: {n}, BLOCK_K: {k}, GROUP_M: 8, "
    f"num_warps: {warps}, num_ctas: 1, num_stages: {stages}, maxnreg: None\n"
    for m, n, k, stages, warps in (row.split(", ") for row in LISTED)
]
BY_TILE = """BY_TILE = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 128, 4, 4),
    _config(64, 64, 32, 4, 4),
]
"""
OUTPUT = {"output_type": "stream", "name": "stdout", "text": TRACE}
KNOWN = {
    "lab 3's order of tiles in a given file of lab 4": GIVEN + ORDER,
    "configs printed by notebook 05": json.dumps({"cells": [{"cell_type": "code", "outputs": [OUTPUT]}]}),
    "three of four configs in a given file of lab 4": GIVEN + BY_TILE,
}


@pytest.fixture(scope="module")
def first():
    answers = collect(ROOT)
    return lambda data: answer_in(data, answers)


@pytest.fixture(scope="module")
def second():
    return token_search.collect(ROOT).found_in


@pytest.fixture(scope="module")
def released():
    files, _ = choose(lying(ROOT))
    return hold_back(files, collect(ROOT))[0]


@pytest.mark.parametrize("leak", KNOWN)
def test_both_searches_find_each_known_leak(leak, first, second):
    data = KNOWN[leak].encode()
    assert first(data)
    assert second(data)


def test_the_given_file_of_lab_4_passes_as_it_is_now(first, second):
    data = (ROOT / "labs/lab4_production_slice/rows.py").read_bytes()
    assert b"column_sums" in data
    assert (first(data), second(data)) == (None, None)


def test_there_are_cases_of_many_kinds():
    assert sum(case["is_leak"] for case in CASES) > 30
    assert sum(not case["is_leak"] for case in CASES) > 20
    assert len({case["kind"] for case in CASES}) > 10


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_leak_is_found_and_an_honest_text_is_not(case, first, second):
    texts = [text.encode() for text in written(case)]
    assert all(texts)
    assert [bool(second(text)) for text in texts] == [case["is_leak"]] * len(texts)
    if case["name"] not in BEYOND_LETTERS:
        assert [bool(first(text)) for text in texts] == [case["is_leak"]] * len(texts)


def test_a_line_of_the_skeleton_behind_another_word_is_not_an_answer(second):
    skeleton = (ROOT / "labs/lab3_autotuned_matmul/autotuned_matmul.py").read_text()
    (line,) = (one for one in skeleton.splitlines() if one.startswith("@triton.autotune(configs=CONFIGS"))
    assert second(f"```python\n{line}\n```\n".encode()) is None


def test_the_second_search_uses_nothing_of_the_first():
    imported = set()
    for name in ("token_search", "number_tables", "text_parts", "decodings"):
        tree = ast.parse((ROOT / f"grader/classroom/release/{name}.py").read_text("utf-8"))
        imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "grader.course.skeleton" in imported
    assert not imported & {f"grader.classroom.release.{name}" for name in ("answers", "build", "withheld")}


def test_every_exemption_is_in_its_files_and_needed(released, first, second):
    listed = exemptions()
    assert 0 < len(listed) < 10
    assert all(len(one.reason) > 20 for one in listed)
    assert unused(released, listed) == []
    paths = [path for one in listed for path in one.files]
    assert [path for path in paths if path not in released] == []
    for one in listed:
        others = tuple(other for other in listed if other is not one)
        for path in one.files:
            data = without_exempted({path: released[path]}, others)[path].data
            assert first(data) or second(data), f"{path}: no search finds the exempted lines"


def test_an_exemption_whose_lines_changed_is_named():
    one = exemptions()[0]
    files = {path: File(b"other lines\n") for path in one.files}
    assert len(unused(files, (one,))) == len(one.files)


def test_an_exemption_covers_its_lines_in_its_files_only(first, second):
    searches = (first, second)
    one, search = next((e, s) for e in exemptions() for s in searches if s(e.text.encode()))
    shown = one.text.encode()
    files = without_exempted({one.files[0]: File(shown), "labs/README.md": File(shown)}, (one,))
    assert not search(files[one.files[0]].data)
    assert search(files["labs/README.md"].data)


@pytest.mark.nightly
def test_the_second_search_finds_nothing_in_a_release(released, second):
    assert len(released) > 350
    searched = without_exempted(released, exemptions())
    found = {path: second(file.data) for path, file in searched.items()}
    assert {path: source for path, source in found.items() if source} == {}


@pytest.mark.nightly
def test_the_second_search_finds_exactly_the_two_leaks_in_the_release_that_had_them(tmp_path, monkeypatch):
    """The tree of that commit makes its release with its own command, which says that there is no answer."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{LEAKED}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if known.returncode:
        pytest.skip(f"commit {LEAKED} is not in this clone")
    (tmp_path / "tree.tar").write_bytes(git(ROOT, "archive", LEAKED))
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    subprocess.run(["tar", "xf", "../tree.tar"], cwd=tree, check=True)
    for step in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *step], cwd=tree, check=True)
    made = subprocess.run(
        [sys.executable, "-m", "grader", "release", str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no answer in any of them" in made.stdout, made.stderr
    (tmp_path / "list.toml").write_bytes(
        git(ROOT, "show", f"{LIST_OF_ITS_TIME}:grader/classroom/release/exemptions.toml")
    )
    monkeypatch.setattr(lists, "LISTED", tmp_path / "list.toml")
    search, listed = token_search.collect(tree), exemptions()
    files = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    found = {
        name for name, path in files.items() if search.found_in(without_lines(path.read_bytes(), listed))
    }
    assert len(files) > 350
    assert found == {"labs/lab4_production_slice/tiles.py", "notebooks/05_autotuning.ipynb"}


def test_renamed_code_is_found_by_its_shape_and_other_code_of_that_length_is_not(second):
    named = re.sub(r"\b(per_group|first|height|tile|GROUP_M|BLOCK_M|BLOCK_N|M|N)\b", r"the_\1", ORDER)
    assert second(named.encode())
    mixed = named.replace("the_height", "the_first")  # two names become one: other code
    assert not second(mixed.split('"""')[2].replace("the_tile", "the_first").encode())
