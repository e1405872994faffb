"""The gate without a GPU: who may write its page, when there is none, and what is said of a wait."""

import ctypes
import mmap
import os

import pytest

from grader.course import catalog
from grader.course.items import SPEED, graded_items
from grader.course.spec import Verdict
from grader.judge.run import Run
from grader.system import cuda_driver
from grader.system.gpu import Gpu
from grader.worker import gate
from grader.worker.session import Session
from grader.worker.waiting import explained

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
ATTRIBUTES = {
    cuda_driver.HOST_REGISTER_SUPPORTED: 1,
    cuda_driver.READ_ONLY_HOST_REGISTER_SUPPORTED: 1,
    cuda_driver.MPS_ENABLED: 0,
}


@pytest.fixture
def called(monkeypatch):
    """Notes the functions of the driver that are called, in place of calling them."""
    names = []
    monkeypatch.setattr(cuda_driver, "call", lambda name, *_: names.append(name))
    return names


@pytest.fixture
def gates(called):  # noqa: ARG001 - it stands for the driver
    one = gate.Gate()
    yield one
    one.close()


def mapped(descriptor, access):
    at = LIBC.mmap(None, ctypes.c_size_t(4096), access, mmap.MAP_SHARED, descriptor, ctypes.c_long(0))
    return None if at in (None, ctypes.c_void_p(-1).value) else at


def test_a_later_mapping_of_the_gate_sees_it_open_and_cannot_write(gates):
    descriptor, _ = gates.descriptors
    at = mapped(descriptor, mmap.PROT_READ)
    word = ctypes.c_uint32.from_address(at)
    assert word.value == 0
    gates.next_ticket()
    gates.open()
    assert word.value == 1
    assert LIBC.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ | mmap.PROT_WRITE) == -1
    assert mapped(descriptor, mmap.PROT_READ | mmap.PROT_WRITE) is None
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"\xff" * 4, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    # Opened again by its name, which gives a descriptor with other rights.
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    try:
        assert mapped(again, mmap.PROT_READ | mmap.PROT_WRITE) is None
        with pytest.raises(PermissionError):
            os.pwrite(again, b"\xff" * 4, 0)
    finally:
        os.close(again)
    assert word.value == 1


def test_a_ticket_is_done_when_the_other_page_says_so(gates):
    at = mapped(gates.descriptors[1], mmap.PROT_READ | mmap.PROT_WRITE)
    for ticket in (1, 2):
        assert gates.next_ticket() == ticket
        assert not gates.is_done
        ctypes.c_uint32.from_address(at).value = ticket
        assert gates.is_done
    gates.next_ticket()
    gates.give_up()
    assert ctypes.c_uint32.from_address(at).value == 3


def test_the_worker_registers_the_gate_read_only(monkeypatch):
    flags = []
    monkeypatch.setattr(
        cuda_driver,
        "call",
        lambda name, *values: flags.append(values[-1].value) if name == "cuMemHostRegister_v2" else None,
    )
    one = gate.Gate()
    gate.Queue(*one.descriptors)
    assert flags == [gate.DEVICE_MAP, gate.DEVICE_MAP, gate.DEVICE_MAP | gate.READ_ONLY, gate.DEVICE_MAP]
    one.close()


@pytest.mark.parametrize(
    ("number", "value", "words"),
    [
        (cuda_driver.MPS_ENABLED, 1, "MPS"),
        (cuda_driver.HOST_REGISTER_SUPPORTED, 0, "cannot register host memory"),
        (cuda_driver.READ_ONLY_HOST_REGISTER_SUPPORTED, 0, "read-only"),
    ],
)
def test_a_gpu_without_what_a_gate_needs_has_none(called, monkeypatch, number, value, words):  # noqa: ARG001
    monkeypatch.setattr(cuda_driver, "attribute", {**ATTRIBUTES, number: value}.__getitem__)
    session = Session("cpu", 1)
    assert words in gate.missing(session)
    assert session.no_gate
    session.close()


def test_a_driver_without_stream_memory_operations_has_no_gate(monkeypatch):
    def call(name, *_):
        if name.startswith("cuStream"):
            raise RuntimeError(f"{name}: CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr(cuda_driver, "attribute", ATTRIBUTES.__getitem__)
    monkeypatch.setattr(cuda_driver, "call", call)
    session = Session("cpu", 1)
    assert "CUDA_ERROR_NOT_SUPPORTED" in gate.missing(session)
    session.close()


def test_a_gpu_that_has_all_has_a_gate_and_is_asked_once(called, monkeypatch):
    monkeypatch.setattr(cuda_driver, "attribute", ATTRIBUTES.__getitem__)
    session = Session("cpu", 1)
    assert gate.missing(session) == ""
    asked = len(called)
    assert asked
    assert gate.missing(session) == ""
    assert len(called) == asked
    session.close()


SLICE = Gpu("NVIDIA H200 MIG 1g.18gb", "580", "x", 90, 1 << 34, 1e12, 1e14, 1980, mig=True)


def test_on_a_slice_of_a_gpu_speed_is_not_graded_and_the_level_says_why(monkeypatch):
    run = Run(catalog.ROOT / "solutions", "gpu", 1, SLICE)
    monkeypatch.setattr(Run, "_arena", lambda *_: None)
    (entry,) = (entry for entry in catalog.find() if entry.number == 1)
    (item,) = (one for one in graded_items(entry) if one.kind == SPEED)
    run.session.parent(interpreted=False)
    outcome = run.answer(item)
    assert outcome.verdict is Verdict.NOT_GRADED
    assert outcome.needs_gpu
    assert "MIG" in outcome.where
    assert "MIG" in run.no_gate
    assert run.assurance_level == 1
    assert "MIG" in run.assurance
    run.close()


# -- what is said of a worker that waits

TEXT = "import torch\n\n\ndef elementwise_add(x, y):\n    a = float(x[0])\n    return a\n"
OWN = '  File "001-add-source/add.py", line 5 in elementwise_add\n'
OURS = '  File "/opt/grader/worker/worker.py", line 340 in _call\n'


def stack(*frames):
    lines = "".join(f'  File "/opt/{path}", line 9 in {function}\n' for path, function in frames)
    return "Timeout (0:00:01.500000)!\nThread 0x1 (most recent call first):\n" + lines + OWN + OURS


@pytest.mark.parametrize(
    ("frames", "reason", "words"),
    [
        ((), "HOST_READ", "reads a result"),
        ((("torch/_tensor.py", "__format__"),), "HOST_READ", "reads a result"),
        ((("torch/cuda/__init__.py", "synchronize"),), "HOST_WAIT", "has finished"),
        (
            (("triton/runtime/jit.py", "run"), ("triton/runtime/jit.py", "<lambda>")),
            "HOST_WAIT",
            "queue is full",
        ),
        (
            (("triton/compiler/compiler.py", "_init_handles"), ("triton/runtime/jit.py", "run")),
            "HOST_WAIT",
            "loaded",
        ),
        (
            (("torch/cuda/__init__.py", "synchronize"), ("triton/testing.py", "do_bench")),
            "HOST_WAIT",
            "times its configs",
        ),
    ],
)
def test_a_wait_is_explained_by_what_lies_above_the_students_line(frames, reason, words):
    outcome = explained(stack(*frames), {"add.py": TEXT})
    assert outcome.label == f"POLICY/{reason}"
    assert words in outcome.where
    assert "line 5" in outcome.where
    (frame,) = outcome.frames
    assert (frame.line, frame.function, frame.code) == (5, "elementwise_add", "a = float(x[0])")


def test_of_several_threads_the_one_in_the_students_file_counts():
    main = (
        'Thread 0x2 (most recent call first):\n  File "/opt/torch/autograd/graph.py", line 1 in backward\n'
        + OURS
    )
    outcome = explained(main + stack(("torch/cuda/__init__.py", "synchronize")), {"add.py": TEXT})
    assert outcome.label == "POLICY/HOST_WAIT"
    assert "line 5" in outcome.where


@pytest.mark.parametrize("text", ["", "nonsense", 'File "add.py", line 99999999999 in f', OURS])
def test_a_worker_that_says_nothing_of_use_gets_a_verdict_all_the_same(text):
    assert explained(text, {"add.py": TEXT}).label == "POLICY/HOST_WAIT"


def test_a_line_that_the_file_does_not_have_is_shown_without_its_code():
    outcome = explained(stack().replace("line 5", "line 500"), {"add.py": TEXT})
    assert outcome.frames[0].code == ""
