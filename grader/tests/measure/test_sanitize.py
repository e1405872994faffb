"""`make sanitize`: what the tool says of a file becomes a finding, and nothing passes unseen."""

import stat

import pytest

from grader.codegen import nvcc
from grader.measure import sanitize
from grader.tests.helpers.course import ROOT

NVCC = nvcc.compiler()
SOLVED = ROOT / "solutions" / "gpu-programming"
BAD_WRITE = """========= COMPUTE-SANITIZER
{"kernel": "vector_add/02_vectorised", "right": true}
========= Invalid __global__ write of size 4 bytes
=========     at add_kernel(const float *, float *, int)+0x70 in 02_vectorised.cu:31
=========     by thread (3,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel(float *)+0x80 in 02_tree.cu:12
=========     and Read access at sum_kernel(float *)+0xa0 in 02_tree.cu:15 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_DEVICE = (
    "========= COMPUTE-SANITIZER\n"
    "========= Error: Target application terminated before first instrumented API call\n"
)
# A program that ends with 1 has its say, too: a line of JSON for each size, and what is wrong.
WRONG = "wrong: size [384, 512, 256], normal numbers, worst error nan"
RESULT = '{"kernel": "matmul/12", "size": [384, 512, 256], "right": false, "worst_error": null}\n'
ENDED = "========= Target application returned an error\n"
REFUSED = CLEAN + "the function returned: too many resources requested for launch\n"


@pytest.mark.parametrize(
    ("code", "said", "state", "words"),
    [
        (0, CLEAN, "clean", ""),
        (9, BAD_WRITE, "found", "Invalid __global__ write of size 4 bytes (02_vectorised.cu:31)"),
        (9, RACE, "found", "Race reported between Write access"),
        (1, CLEAN, "found", "exited with code 1, without output"),
        (
            1,
            ENDED + CLEAN + RESULT + f"{WRONG}\n" * 33,
            "found",
            f"exited with code 1: {WRONG}; right: false for size [384, 512, 256]",
        ),
        (
            1,
            REFUSED,
            "found",
            "exited with code 1: the function returned: too many resources requested for launch",
        ),
        (1, RACE + REFUSED, "found", "exited with code 1: Race reported between Write access"),
        (1, RACE + REFUSED, "found", "the function returned: too many resources"),
        (255, NO_DEVICE, "not run", "terminated before"),
        (9, CLEAN.replace("ERROR SUMMARY", "no such line"), "not run", "no such line"),
        (0, "", "not run", "no output"),
    ],
)
def test_an_exit_code_and_an_output_make_a_finding(tmp_path, code, said, state, words):
    found = sanitize.read(tmp_path / "a.cu", "memcheck", code, said)
    assert found.state == state
    assert words in found.words
    assert found.words.count("worst error") <= 1  # however often the program says so
    assert "returned an error" not in found.words  # the exit code says as much


def test_every_finished_file_is_looked_at_and_no_other():
    found = sanitize.files(SOLVED)
    assert len(found) == 23
    assert {path.parent.name for path in found} == set(sanitize.SIZES)
    assert sanitize.files(ROOT / "gpu-programming") == []  # skeletons do not compile


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_each_file_is_run_under_each_tool_and_one_that_does_not_compile_once(tmp_path):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f'#!/bin/sh\nprintf \'{CLEAN.replace(chr(10), chr(92) + "n")}\'\n"$5" "$6" || exit 0\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    for name, text in (("good", "int main() { return 0; }\n"), ("bad", "int main() { return x; }\n")):
        (tmp_path / "reduction").mkdir(exist_ok=True)
        (tmp_path / "reduction" / f"{name}.cu").write_text(text)
    files = [tmp_path / "reduction" / "bad.cu", tmp_path / "reduction" / "good.cu"]
    found = list(sanitize.examine(files, "sm_80", NVCC, tool))
    assert [(one.file.stem, one.tool, one.state) for one in found] == [
        ("bad", "memcheck", "not run"),
        *(("good", name, "clean") for name in sanitize.TOOLS),
    ]
    assert "line 1" in found[0].words


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_a_program_that_fails_under_one_tool_alone_has_its_own_words_shown(tmp_path):
    tool = tmp_path / "compute-sanitizer"
    said = CLEAN.replace("\n", "\\n")
    tool.write_text(f'#!/bin/sh\nprintf \'{said}\'\ncase "$2" in racecheck) exec "$5" "$6" ;; esac\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "reduction").mkdir()
    file = tmp_path / "reduction" / "07.cu"
    file.write_text(
        "#include <cstdio>\n"
        'int main() { return std::fprintf(stderr, "wrong: size 5, whole numbers, worst error 1\\n") > 0; }\n'
    )
    found = list(sanitize.examine([file], "sm_80", NVCC, tool))
    assert {one.tool: one.words for one in found if one.state != "clean"} == {
        "racecheck": "the program itself exited with code 1: wrong: size 5, whole numbers, worst error 1"
    }
