"""What notebooks show of a GPU: recorders with fakes, the record they write, and records without a GPU."""

import json
import sys

import pytest
from rich.console import Console

from grader.course import catalog
from grader.grading.progress import Follower
from grader.site.notebooks import autotuning, kernels, lessons, records
from grader.site.notebooks.lessons import Lessons, Recorder, Told
from grader.site.notebooks.recorders import RECORDERS
from grader.system import gpu
from grader.system.processes import Completed, run_tool
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

FOUND = gpu.Gpu("NVIDIA FAKE", "1.0", "0" * 16, 90, 2**30, 1e12, 1e15, 1000)
WITHOUT_GPU = pytest.mark.skipif(gpu.find()[0] is not None, reason="this machine has a GPU")


def told(text):
    return Told(command=f"say {text}", texts={"words": text}, figures={"time_us": float(len(text))})


def failing():
    raise RuntimeError("no such tool here")


def recorded(path, *recorders):
    return lessons.run(recorders, path, FOUND, Follower(Console(quiet=True)))


def test_each_recorder_leaves_an_entry_with_its_machine_and_date(tmp_path):
    path = tmp_path / "lessons.json"
    _, troubles = recorded(
        path, Recorder("one", lambda: told("first")), Recorder("two", lambda: told("second"))
    )
    assert troubles == {}
    kept = Lessons.model_validate_json(path.read_text())
    assert {name: one.texts["words"] for name, one in kept.entries.items()} == {
        "one": "first",
        "two": "second",
    }
    assert all(one.machine.gpu.name == "NVIDIA FAKE" and one.date for one in kept.entries.values())


def test_a_recorder_that_fails_is_named_and_spoils_nothing(tmp_path):
    path = tmp_path / "lessons.json"
    recorded(path, Recorder("one", lambda: told("before")))
    _, troubles = recorded(path, Recorder("one", failing), Recorder("two", lambda: told("after")))
    assert troubles == {"one": "RuntimeError: no such tool here"}
    kept = Lessons.model_validate_json(path.read_text())
    assert {name: one.texts["words"] for name, one in kept.entries.items()} == {
        "one": "before",
        "two": "after",
    }


def test_recorders_have_names_of_their_own():
    names = [one.name for one in RECORDERS]
    assert names
    assert len(set(names)) == len(names)


TUNED = """
import sys
from grader.site.notebooks import autotuning, kernels
kernels.settle(None)
autotuning.TILES, autotuning.STAGES = ((64, 64), (32, 32)), (2,)
autotuning.main(sys.argv[1], (32, 128))
"""


def tuned(monkeypatch, what):
    """What the recorder tells when its process tunes small sizes in the interpreter, times by chance."""

    def small(command, limit_s, **options):
        options["env"] = options["env"] | {"TRITON_INTERPRET": "1"}
        return run_tool([sys.executable, "-c", TUNED, command[-1]], limit_s, **options)

    monkeypatch.setattr(autotuning, "run_tool", small)
    return {autotuning.TRACE: autotuning.trace, autotuning.SPACE: autotuning.search_space}[what]()


def test_the_trace_is_what_the_autotuner_prints_and_a_known_key_is_not_tuned_again(monkeypatch):
    found = tuned(monkeypatch, autotuning.TRACE)
    first, second, again = found.texts["trace"].split("matmul, M = N = K = ")[1:]
    assert first.startswith("32\nAutotuning kernel matmul_kernel with config BLOCK_M: 64")
    assert "with key as (128, 128, 128" in second
    assert second.count("Autotuning kernel") == 3
    assert again == "128"
    assert sum(name.startswith("128: BLOCK_M") for name in found.figures) == 3
    assert all(value > 0 for value in found.figures.values())
    assert found.command.endswith("grader.site.notebooks.autotuning trace")


@pytest.mark.slow
def test_a_space_has_a_figure_for_each_config_that_ran_and_names_the_others(monkeypatch):
    found = tuned(monkeypatch, autotuning.SPACE)
    assert len(found.figures) == 2 * len(autotuning.DEPTHS) * len(autotuning.WARPS)
    assert "Autotuning kernel" not in found.texts["space"]


def test_a_config_that_does_not_fit_is_no_figure(monkeypatch, capsys):
    class Tuner:
        fn = None
        configs_timings = {"fits": [0.5, 0.4, 0.6], "does not fit": [float("inf")] * 3}  # noqa: RUF012

    class Module:
        matmul_kernel = Tuner
        matmul = staticmethod(lambda *_: None)

    import triton

    monkeypatch.setattr(autotuning, "_plain", lambda: Module)
    monkeypatch.setattr(triton, "autotune", lambda **_: lambda _kernel: Tuner)
    autotuning.main(autotuning.SPACE, (4,))
    text, _, figures = capsys.readouterr().out.partition(autotuning.MARK)
    assert text == "does not fit\n"
    assert json.loads(figures) == {"fits": 500.0}


def test_a_recorder_whose_process_fails_says_how_it_ended(monkeypatch):
    def ended(_command, *limit_s, **options):
        return run_tool([sys.executable, "-c", "raise SystemExit('no memory')"], *limit_s, **options)

    monkeypatch.setattr(autotuning, "run_tool", ended)
    with pytest.raises(RuntimeError, match="no memory"):
        autotuning.trace()


@WITHOUT_GPU
def test_without_a_gpu_the_record_is_shown_and_said_to_be_one(capsys):
    one = records.bench("matmul_bias_relu", "h200-bench-bias-relu.json")
    assert one.sizes
    said = capsys.readouterr().out
    assert (
        "no GPU here: measured on an NVIDIA H200, record solutions/results/h200-bench-bias-relu.json" in said
    )


def test_with_a_gpu_the_measurement_is_taken_here(monkeypatch, capsys):
    monkeypatch.setattr(records.gpu, "find", lambda: (FOUND, ""))
    stored = (ROOT / "solutions" / "results" / "h200-bench-add.json").read_text()
    asked = []

    def bench(command, *_, **__):
        asked.append(command)
        folder = command[command.index("--results") + 1]
        (records.Path(folder) / "bench.json").write_text(stored)
        return Completed(0, b"")

    monkeypatch.setattr(records, "run_tool", bench)
    one = records.bench("elementwise_add", "h200-bench-matmul.json", ["lab1_elementwise_add/variants/x.py"])
    assert one.name == "elementwise_add"
    assert "measured here, on an NVIDIA FAKE" in capsys.readouterr().out
    assert asked[0][3:9] == ["bench", "--op", "elementwise_add", "--quick", "--from", "solutions"]
    assert asked[0][-2:] == ["--variants", "solutions/lab1_elementwise_add/variants/x.py"]


@WITHOUT_GPU
def test_what_was_never_recorded_is_said(monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the record solutions/results/none\.json does not exist"):
        records.bench("matmul", "none.json")
    (tmp_path / "solutions" / "results").mkdir(parents=True)
    Lessons().save(tmp_path / lessons.LESSONS)
    monkeypatch.setattr(records.catalog, "ROOT", tmp_path)
    with pytest.raises(
        LookupError, match="has no entry search space: run python -m grader notebooks --record"
    ):
        records.lesson_record("search space")


def test_a_step_of_the_log_is_found_by_its_file_and_its_longest_kernel_is_the_one_that_counts():
    step = records.logged_step("05_deterministic.cu")
    assert len(step.counters) > 1
    assert records.counter(step, "duration") == max(one.figures["duration"].value for one in step.counters)
    with pytest.raises(LookupError, match=r"measured none\.cu"):
        records.logged_step("none.cu")


def speaks(word):
    import os

    print(word, os.environ.get("TRITON_INTERPRET"), os.getcwd())


def fails():
    raise ValueError("on purpose")


def test_what_runs_apart_does_not_interpret_and_names_no_folder(monkeypatch, capsys):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernels.apart(speaks, "hello")
    assert capsys.readouterr().out.startswith("hello None ")
    with pytest.raises(RuntimeError, match=r"fails failed: [\s\S]*on purpose"):
        kernels.apart(fails)


def test_a_kernel_is_imported_by_its_path_and_only_once():
    one = kernels.solution("lab1_elementwise_add/elementwise_add.py")
    assert one is kernels.solution("lab1_elementwise_add/elementwise_add.py")
    assert one.__file__.endswith("solutions/lab1_elementwise_add/elementwise_add.py")
    with pytest.raises(FileNotFoundError, match=r"labs/lab1_elementwise_add/none\.py does not exist"):
        kernels.lab("lab1_elementwise_add/none.py")


def test_triton_that_was_imported_too_early_is_said(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(sys.modules, "triton", object())
    with pytest.raises(RuntimeError, match="restart the kernel"):
        kernels.settle(None)


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["solutions", "labs"])
def test_lab_4_is_one_library_with_solutions_and_without(tree):
    # In a process of its own: files of both trees import each other by the same names.
    code = f"""
from grader.site.notebooks import kernels
kernels._tree = lambda: {tree!r}
library = kernels.production_slice()
assert all(callable(getattr(library, name)) for name in library.__all__)
print(*sorted(library.__all__), library.__path__[0])
"""
    done = python("-c", code, TRITON_INTERPRET="1")
    *names, folder = done.stdout.split()
    (entry,) = (one for one in catalog.find() if one.number == 4)
    assert {exercise.name for exercise in entry.lab.exercises} <= set(names)
    assert folder == str(ROOT / tree / "lab4_production_slice")
