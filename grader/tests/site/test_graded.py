"""What a notebook asks the grader is answered as `make grade` answers it."""

import pytest

from grader.site.notebooks import graded


@pytest.fixture(autouse=True, scope="module")
def session_is_closed():
    yield
    if graded._session.cache_info().currsize:
        graded._session().close()
        graded._session.cache_clear()


def test_a_wrong_answer_gets_its_verdict_and_the_hint_to_read():
    said = graded.judged(1, "elementwise_add", "n=127,fp32", "wrong/store_without_mask.py")
    assert "OUT OF BOUNDS/WRITE" in said
    assert "hint 2" in said


def test_the_solution_passes():
    assert "PASS" in graded.judged(1, "elementwise_add", "n=127,fp32", "elementwise_add.py")


@pytest.mark.slow
def test_a_file_is_compiled_for_the_architecture_that_is_asked_for():
    for arch, instruction in ((80, "mma.sync"), (90, "wgmma.mma_async")):
        kernels = graded.compiled(3, "matmul", arch, file="variants/ladder_2_grouped.py")
        assert {kernel.tensor_core for kernel in kernels} == {instruction}


def test_a_skeleton_launches_nothing_and_the_error_says_what_is_open():
    with pytest.raises(RuntimeError, match=r"(?s)elementwise_add of labs launched no kernel.*TODO 1"):
        graded.compiled(1, "elementwise_add", 90, source="labs")


def test_a_question_that_no_lab_asks_is_named():
    with pytest.raises(LookupError, match="lab 1 has no item elementwise_add, correctness n=2,fp32"):
        graded.judged(1, "elementwise_add", "n=2,fp32", "elementwise_add.py")
    assert "n=127,fp32" in graded.cases(1, "elementwise_add")
