"""What the notebooks record of profilers and of a training step, with stand-ins for the GPU."""

import json
import re
from pathlib import Path

import pytest
import torch

from grader.site.notebooks import (
    ncu_page,
    proton_session,
    recorded_apart,
    recorders,
    records,
    torch_profiler,
    training_step,
)
from grader.site.notebooks.lessons import LESSONS, Lessons, Recorder, Told, entry
from grader.site.notebooks.proton_session import Scope
from grader.site.notebooks.recorders import RECORDERS
from grader.system.gpu import Gpu
from grader.tests.helpers.course import ROOT


class FakeProfiler:
    """Writes the scopes that were entered in Proton's format, with the calls made while they were open."""

    def __init__(self, calls):
        self.calls, self.file, self.open, self.seen, self.running = calls, None, None, {}, False

    def start(self, file):
        self.file, self.running, self.before = Path(file), True, len(self.calls)

    def scope(self, name):
        self.open = name
        return self

    def __enter__(self):
        self.began = len(self.calls)

    def __exit__(self, *_):
        self.seen[self.open] = len(self.calls) - self.began

    def finalize(self):
        children = [
            {"frame": {"name": name}, "metrics": {"count": count}} for name, count in self.seen.items()
        ]
        self.file.with_suffix(".hatchet").write_text(json.dumps([{"children": children}, {}]), "utf-8")


def test_a_session_counts_no_call_that_compiles_and_keeps_the_work_of_each_scope(tmp_path):
    calls = []
    profiler = FakeProfiler(calls)
    asked = {
        "product": Scope(lambda: calls.append(1), flops=6),
        "row": Scope(lambda: calls.append(2), bytes_moved=8),
    }
    told = proton_session.session(asked, profiler, tmp_path, lambda: None)
    (tree, _) = json.loads(told.texts["tree"])
    assert {one["frame"]["name"]: one["metrics"]["count"] for one in tree["children"]} == {
        "product": proton_session.CALLS,
        "row": proton_session.CALLS,
    }
    assert profiler.before > 0
    assert told.figures["product, flops"] == 6
    assert told.figures["row, bytes"] == 8


def test_the_profiler_is_asked_about_every_arm_and_leaves_a_table_and_events(monkeypatch):
    arms = {"five operators": torch_profiler.in_five_steps, "one": lambda x: torch.softmax(x, dim=-1)}
    monkeypatch.setattr(torch_profiler, "arms", lambda: arms)
    told = torch_profiler.measure("cpu", rows=3, cols=40)
    assert set(told.texts) == {f"{what}, {arm}" for what in ("table", "events") for arm in arms}
    assert "aten::exp" in told.texts["table, five operators"]
    assert "aten::exp" not in told.texts["table, one"]
    events = json.loads(told.texts["events, five operators"])
    starts = [event["start_us"] for event in events]
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert {event["name"] for event in events} >= {
        "aten::max",
        "aten::sub",
        "aten::exp",
        "aten::sum",
        "aten::div",
    }


def test_softmax_in_five_steps_is_softmax():
    x = torch.randn(3, 40)
    torch.testing.assert_close(torch_profiler.in_five_steps(x), torch.softmax(x, dim=-1))


def test_a_training_step_is_told_of_each_operator_and_each_arm_with_its_gradients_taken_away(monkeypatch):
    plain = {"double": lambda x, *_: 2 * x, "shift": lambda x, w, b: x * w + b}
    ran = []
    monkeypatch.setattr(training_step, "operators", lambda: (plain, plain))
    monkeypatch.setattr(training_step.torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(
        training_step, "elapsed_us", lambda run: (run(), ran.append(run), float(len(ran)))[-1]
    )
    monkeypatch.setattr(training_step, "memory", lambda run: (run(), {"kept_bytes": 1, "peak_bytes": 2})[-1])
    told = training_step.measure("cpu", rows=2, cols=8)
    kinds = {"kept_bytes", "peak_bytes", "median_us"}
    arms = [(one, arm) for one in plain for arm in ("torch", "lab 4")]
    arms += [(training_step.ALL, f"{arm}{how}") for arm in ("torch", "lab 4") for how in ("", ", compiled")]
    expected = {f"{operator}, {arm}, {kind}" for operator, arm in arms for kind in kinds}
    assert {name for name in told.figures if name.count(",") > 1} == expected
    assert len(ran) == training_step.ROUNDS * len(arms)
    # Every arm is once the first of a round, so none always meets what another left in the caches.
    assert ran[0] is ran[3] is not ran[1]


def test_a_recorder_that_fails_says_its_last_words(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded_apart.catalog, "ROOT", tmp_path)
    (tmp_path / "broken.py").write_text("raise SystemExit('no CUPTI here')")
    (tmp_path / "silent.py").write_text("")
    with pytest.raises(RuntimeError, match="broken: no CUPTI here"):
        recorded_apart.ask("broken")
    with pytest.raises(RuntimeError, match="silent"):
        recorded_apart.ask("silent")


def test_what_a_recorder_tells_arrives(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded_apart.catalog, "ROOT", tmp_path)
    (tmp_path / "tells.py").write_text(
        f"import sys; sys.path.append({str(Path(recorded_apart.__file__).parents[3])!r})\n"
        "from grader.site.notebooks.lessons import Told\n"
        "from grader.site.notebooks.recorded_apart import tell\n"
        "tell(lambda folder: Told(command='a command', figures={'there': float(folder.is_dir())}))\n"
    )
    told = recorded_apart.ask("tells")
    assert (told.command, told.figures) == ("a command", {"there": 1.0})


def test_of_what_ncu_prints_the_page_of_the_kernel_is_kept():
    told = "  softmax_kernel (16384, 1, 1)\n    Section: Occupancy\n    Registers  32"
    said = f"==PROF== Connected\n[4321] python@127.0.0.1\n{told}  \n==PROF== Bye\n"
    assert ncu_page.page_of(said) == told
    assert ncu_page.page_of("==ERROR== ERR_NVGPUCTRPERM\n") == ""


def test_a_machine_without_ncu_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(ncu_page.ncu, "profiler", lambda: None)
    with pytest.raises(RuntimeError, match="ncu was not found"):
        ncu_page.record()


def test_what_ncu_says_in_place_of_a_page_is_the_error(monkeypatch, tmp_path):
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\necho no counters for you >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setattr(ncu_page.ncu, "profiler", lambda: tool)
    with pytest.raises(RuntimeError, match="fused_softmax_forward: no counters for you"):
        ncu_page.record()


@pytest.mark.parametrize(
    "name",
    ["training step", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch profiler", "proton"))],
)
def test_a_recorder_of_its_own_process_is_found_and_on_a_machine_without_a_gpu_says_so(name):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, on which it would measure")
    (recorder,) = (one for one in RECORDERS if one.name == name)
    with pytest.raises(RuntimeError, match=r"NVIDIA|CUDA"):
        recorder.record()


@pytest.fixture
def with_a_gpu(monkeypatch, tmp_path):
    """A machine with a GPU and one recorder, and a record of that recorder from another one."""
    card = Gpu("Card", "1", "0" * 16, 90, 2**30, 4e12, 1e15, 1980)
    kept = Lessons(entries={"one": entry(Told(command="c", figures={"x": 1.0}), card)})
    monkeypatch.setattr(records.catalog, "ROOT", tmp_path)
    (tmp_path / LESSONS).parent.mkdir(parents=True)
    kept.save(tmp_path / LESSONS)
    monkeypatch.setattr(records.gpu, "find", lambda: (card, ""))

    def use(record):
        monkeypatch.setattr(recorders, "RECORDERS", (Recorder("one", record),))

    return use


def test_a_notebook_measures_on_the_gpu_that_is_there(with_a_gpu, capsys):
    with_a_gpu(lambda: Told(command="c", figures={"x": 2.0}))
    assert records.told("one").figures["x"] == 2.0
    assert "measured here, on an Card" in capsys.readouterr().out


def test_a_notebook_shows_the_record_and_why_where_the_recorder_cannot_run(with_a_gpu, capsys):
    def refuse():
        raise RuntimeError("there is no ncu")

    with_a_gpu(refuse)
    assert records.told("one").figures["x"] == 1.0
    said = capsys.readouterr().out
    assert "not measured here: there is no ncu" in said
    assert "recorded on an Card" in said


def test_every_lesson_that_a_notebook_shows_is_in_the_record():
    asked = {
        name
        for path in (ROOT / "notebooks").glob("*.py")
        for name in re.findall(r"(?:told|lesson_record)\(\"([^\"]+)\"\)", path.read_text("utf-8"))
    }
    assert asked
    assert asked <= {one.name for one in RECORDERS}
    assert (ROOT / LESSONS).is_file(), f"not recorded: python -m grader notebooks --record {LESSONS}"
    kept = Lessons.model_validate_json((ROOT / LESSONS).read_text("utf-8"))
    assert asked - set(kept.entries) == set()
