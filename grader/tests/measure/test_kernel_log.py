"""The kernel log: steps on synthetic measurements, the chain, and every way to tamper that is looked for."""

import hashlib
import json
import os
import random
import re

import pytest
from pydantic import ValidationError

from grader.codegen import nvcc
from grader.judge import statistics
from grader.measure.bench.record import BenchRecord, OpRecord
from grader.measure.kernel_log import ncu
from grader.measure.kernel_log import step as kernel_log
from grader.measure.kernel_log.check import Steps, check, summary
from grader.measure.kernel_log.files import quoted
from grader.measure.kernel_log.markdown import HEAD, LEARNED, PLACEHOLDER, blocks, number_of, render, shown
from grader.measure.kernel_log.numbers import Known, numbers
from grader.measure.kernel_log.record import (
    Figure,
    Measured,
    Record,
    Timing,
    op_of,
    timing_from,
)
from grader.measure.kernel_log.store import LogError, before, changed_lines, steps
from grader.measure.kernel_log.tools import compile_for, tools
from grader.results.machine import machine
from grader.system.gpu import Gpu
from grader.tests.helpers.course import ROOT
from grader.tests.measure.kernel_log_fakes import (
    CARD,
    NAIVE,
    SIZE,
    TILED,
    WORDS,
    Bench,
    counters,
    learn,
    step,
)


@pytest.fixture
def tree(tmp_path):
    for name, text in {NAIVE: "naive\n", TILED: "tiled\n"}.items():
        path = tmp_path / "gpu-programming" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "gpu-programming"


@pytest.fixture
def bench(tree):
    made = Bench(tree)
    made.us = {"naive\n": 90.0, "tiled\n": 30.0, "tiled\nslow\n": 33.0, "tiled\nsame\n": 30.0}
    return made


@pytest.fixture
def logged(tree, bench):
    """Two right steps of the same ladder, with words under each."""
    step(tree, bench, NAIVE, "one thread for each element, slow")
    step(tree, bench, TILED)
    learn(tree, 1)
    learn(tree, 2)
    assert check(tree) == []
    return tree


def page(tree):
    return (tree / "KERNEL_LOG.md").read_text()


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def problem(tree, *words):
    """The only finding, which has all of these words."""
    (found,) = check(tree)
    assert all(word in found for word in words), found
    return found


# -- a step


def test_a_step_takes_the_kernel_that_was_changed_last_and_says_so(tree, bench):
    os.utime(tree / NAIVE, (1, 1))
    record, said = step(tree, bench)
    assert (record.file, record.op, record.title) == (TILED, "cuda_matmul", "matmul")
    assert said[0] == f"step 1: {TILED}, the kernel that was changed last"


def test_a_kernel_may_be_named_by_its_file_name_alone(tree, bench):
    record = kernel_log.log(
        tree, WORDS, bench.tools(), tree.joinpath("01_naive.cu").relative_to(tree), say=str
    )
    assert record.file == NAIVE


@pytest.mark.parametrize("name", ["lab.py", "../secret.cu", "cuda-kernels/wrong/x.cu"])
def test_a_file_that_is_no_kernel_of_the_log_is_refused(tree, bench, name):
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    with pytest.raises(LogError, match="is not a kernel file"):
        step(tree, bench, name)


@pytest.mark.parametrize("words", ["", "  \n ", "faster", "it gets faster", "much-faster-than-it-was-before"])
def test_an_empty_or_trivial_prediction_is_refused(tree, bench, words):
    with pytest.raises(LogError, match="say what you expect and why"):
        step(tree, bench, words=words)
    assert bench.called == []


def test_a_prediction_of_a_whole_page_is_refused(tree, bench):
    with pytest.raises(LogError, match="at most 2000 characters, this one"):
        step(tree, bench, words="no word of it is short " * 157)


def test_the_prediction_is_stored_before_anything_is_measured(tree, bench):
    step(tree, bench)
    assert bench.pending["prediction"] == WORDS
    assert [called[0] for called in bench.called] == ["compile", "bench", "profile"]
    assert not (tree / "kernel-log" / "pending.json").exists()


def test_an_interrupted_step_leaves_no_entry_but_its_prediction_stands(tree, bench):
    bench.stop = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        step(tree, bench, TILED)
    assert [path.name for path in (tree / "kernel-log").iterdir()] == ["pending.json"]
    assert not (tree / "KERNEL_LOG.md").exists()
    bench.stop = None
    record, said = step(tree, bench, TILED, "no, it gets slower after all")
    assert record.prediction == WORDS
    assert any("which is kept" in line for line in said)


def test_another_file_gets_another_prediction_after_an_interrupted_step(tree, bench):
    bench.stop = LogError("no GPU")
    with pytest.raises(LogError):
        step(tree, bench, TILED)
    bench.stop = None
    assert step(tree, bench, NAIVE, "another prediction for another file")[0].prediction.startswith("another")


def test_the_snapshot_holds_the_kernel_and_the_headers_that_it_includes(tree, bench):
    folder = (tree / TILED).parent
    (folder / "hopper.cuh").write_text('#include "plain.cuh"\n')
    (folder / "plain.cuh").write_text("int x;\n")
    (folder / "unused.cuh").write_text("int y;\n")
    (tree / TILED).write_text(
        '#include <mma.h>\n#include "hopper.cuh"\n#ifndef NO_PROGRAM\n#include "unused.cuh"\n#endif\n'
    )
    record, _ = step(tree, bench, TILED)
    stored = tree / "kernel-log" / "0001"
    assert sorted(path.name for path in stored.iterdir()) == sorted([*record.files, "record.json"])
    assert list(record.files) == ["02_coalesced_shared_tile.cu", "hopper.cuh", "plain.cuh"]
    for name, digest in record.files.items():
        assert hashlib.sha256((stored / name).read_bytes()).hexdigest() == digest


def test_headers_of_the_program_alone_are_left_out():
    source = '#if A\n#include "a.cuh"\n#endif\n#ifndef NO_PROGRAM\n#ifdef B\n#include "b.cuh"\n#endif\n'
    assert quoted(f'{source}#include "c.cuh"\n#endif\n#include "d.cuh"\n') == ["a.cuh", "d.cuh"]


def test_a_step_is_measured_beside_the_last_right_one_of_its_ladder(tree, bench):
    step(tree, bench, NAIVE)
    bench.status["tiled\n"] = ("wrong", "3 of 4096 elements are wrong")
    record, _ = step(tree, bench, TILED)
    assert (record.status, record.counters) == ("wrong", None)
    (tree / TILED).write_text("tiled\nsame\n")
    record, _ = step(tree, bench, TILED)
    assert (record.compared_with, record.timing.previous.median_us) == (1, pytest.approx(90.0, rel=0.01))
    assert bench.called[-2] == ("bench", "02_coalesced_shared_tile.cu", "naive\n")
    assert "WRONG: 3 of 4096 elements are wrong" in page(tree)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tiled\nslow\n", "slower than step 1 by 9.1 % (9.1 % to 9.1 %)"),
        ("tiled\nsame\n", "no difference from step 1: +0.0 %"),
        ("naive\n", "slower than step 1 by 66.7 %"),
    ],
)
def test_the_verdict_follows_from_the_paired_interval(tree, bench, text, words):
    step(tree, bench, TILED)
    (tree / TILED).write_text(text)
    step(tree, bench, TILED)
    assert words in page(tree)


def test_a_faster_step_shows_its_gain_its_rate_and_its_share_of_the_best_baseline(logged):
    text = page(logged)
    assert "**Result**: faster than step 1 by 200.0 % (200.0 % to 200.0 %)" in text
    assert "| time | 90.27 µs | 30.09 µs | -66.7 % | graph |" in text
    assert "| of its speed | 55.6 % | 166.7 % (166.7 % to 166.7 %) | +111.1 points |  |" in text
    assert "1 lines added, 1 removed" in text


def test_counters_stand_beside_those_of_the_step_before_with_their_metric(tree, bench):
    bench.counters = ncu.Profile((counters(name="naive_kernel"),))
    step(tree, bench, NAIVE)
    bench.counters = ncu.Profile((counters(registers=96.0, conflicts=0.0),))
    step(tree, bench, TILED)
    text = page(tree)
    assert "| **`tile_kernel`** | `naive_kernel` | (4, 1, 1) x (16, 16, 1) |  | ncu |" in text
    row = "| registers of a thread | 64 registers | 96 registers | +50.0 % | `launch__registers_per_thread` |"
    assert row in text
    assert "| L2 hit rate | 71.5 % | 71.5 % | same | `lts__t_sector_hit_rate.pct` |" in text
    assert "| tensor pipe |  | not reported |  |  |" in text
    assert "| stalled: `barrier` |" in text


def test_figures_of_two_metrics_are_not_subtracted(tree, bench):
    step(tree, bench, NAIVE)
    other = counters()
    other.figures["L2 hit rate"] = Figure(value=60.0, unit="%", metric="lts__average_t_sector_hit_rate.pct")
    bench.counters = ncu.Profile((other,))
    step(tree, bench, TILED)
    assert (
        "| L2 hit rate | 71.5 % | 60.0 % |  | "
        "`lts__average_t_sector_hit_rate.pct`, before `lts__t_sector_hit_rate.pct` |"
    ) in page(tree)


def test_a_step_without_counters_has_the_reason_and_its_times(tree, bench):
    bench.counters = ncu.Profile(None, ncu.PERMISSION)
    record, said = step(tree, bench)
    assert (record.counters, record.status) == (None, "ok")
    assert said[-1] == ncu.PERMISSION
    assert "No counters: ncu may not read the counters" in page(tree)
    learn(tree, 1)
    assert check(tree) == []


def test_another_size_gives_no_delta(tree, bench):
    step(tree, bench, NAIVE)
    record, _ = step(tree, bench, TILED, size={"m": 8, "n": 8, "k": 8})
    assert record.timing.previous is None
    assert "no comparison: step 1 was measured at m=64, n=64, k=64" in page(tree)


def test_another_machine_is_named(tree, bench):
    step(tree, bench, NAIVE)
    bench.card = Gpu("other GPU", "2.0", "1" * 16, 90, 2**30, 4e12, 1e15, 1000)
    step(tree, bench, TILED)
    assert "Not the same machine as in step 1: GPU synthetic GPU to other GPU; device" in page(tree)


def test_a_process_that_died_is_a_failed_step_and_short_memory_is_none(tree, bench):
    def died(words):
        def run(op, file, *_):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            one = OpRecord(name=op, dtype="", unit="", file="f", file_sha256=digest, troubles=[words])
            return BenchRecord(
                date="", command="", processes=1, machine=machine(CARD, ""), cuda=None, liger=None, ops=[one]
            )

        return run

    bench.bench = died("process 1 exited with code 1: 8192 needs more memory than is free")
    with pytest.raises(LogError, match="more memory than is free"):
        step(tree, bench)
    bench.bench = died("process 1 exited with code -11: illegal access")
    record, _ = step(tree, bench)
    assert (record.status, record.timing) == ("failed", None)
    assert "FAILED: process 1 exited with code -11: illegal access" in page(tree)
    learn(tree, 1)
    assert check(tree) == []


def test_a_size_with_other_sides_is_refused_before_anything_is_measured(tree, bench):
    with pytest.raises(LogError, match="the size of cuda_matmul needs exactly m, n, k"):
        step(tree, bench, TILED, size={"n": 64})
    assert not any(one[0] == "bench" for one in bench.called)


def test_what_the_bench_did_not_measure_is_not_logged(tree, bench):
    real = bench.bench

    def other(*arguments):
        record = real(*arguments)
        record.ops[0].file_sha256 = "0" * 64
        return record

    bench.bench = other
    with pytest.raises(LogError, match="did not measure the file of the snapshot"):
        step(tree, bench)
    assert not (tree / "kernel-log" / "0001").exists()


NVCC = nvcc.compiler()
KERNEL = """__global__ void twice_kernel(float* x) {
    __shared__ float kept[32];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = 2 * kept[31 - threadIdx.x];
}
"""


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_the_compiler_reports_each_kernel_and_a_file_that_does_not_compile_is_no_step(tmp_path):
    file = tmp_path / "twice.cu"
    file.write_text(KERNEL)
    (found,) = compile_for("sm_80", file, tmp_path)
    assert (found.name, found.shared_bytes, found.spill_bytes) == ("twice_kernel", 128, 0)
    assert found.registers > 0
    (tmp_path / "broken.cu").write_text("int x\nfloat y;\n")
    with pytest.raises(LogError, match=r"broken.cu does not compile; nothing was logged: line \d"):
        compile_for("sm_80", tmp_path / "broken.cu", tmp_path)


def test_the_real_bench_is_asked_for_the_copy_the_step_before_and_one_size(tmp_path, monkeypatch):
    from grader.measure.bench import run as bench

    asked = []
    monkeypatch.setattr(bench, "run", lambda request, *rest: asked.append((request, *rest)))
    made = tools(tmp_path, CARD, "a follower", "make log")
    ours, previous = tmp_path / "ours.cu", tmp_path / "previous.cu"
    made.bench("cuda_matmul", ours, previous, SIZE)
    request, gpu, path, follower = asked[0]
    op = made.op("cuda_matmul")
    assert (request.names, request.variants, request.processes) == (("cuda_matmul",), (previous,), 1)
    assert (request.ours(op), request.sizes(op)) == (ours, (SIZE,))
    assert (gpu, path.name, follower) == (CARD, "bench.json", "a follower")
    assert op.quick[-1] == {"m": 8192, "n": 8192, "k": 8192}
    words = request.arguments(op, 0)
    assert words[words.index("--file") + 1] == str(ours)
    assert words[words.index("--size") + 1] == "m=64,n=64,k=64"


# -- the page


def test_rendering_again_keeps_the_prose_byte_for_byte(logged):
    path = logged / "KERNEL_LOG.md"
    prose = "Before.\r\n\tmore \u00b5 \u2014 |x| <!-- a comment -->\n"
    text = (
        prose + page(logged).replace("The tiles pay.", f"My words.\r\n{prose}", 1) + "No newline at the end"
    )
    path.write_bytes(text.encode())
    kernel_log.rewrite(logged)
    assert path.read_bytes() == text.encode()
    path.write_bytes(text.replace("faster than step 1", "twice as fast as step 1").encode())
    kernel_log.rewrite(logged)
    assert path.read_bytes() == text.encode()


def test_an_entry_that_is_missing_is_added_again(logged):
    path = logged / "KERNEL_LOG.md"
    before_it = page(logged)
    path.write_text(before_it[: before_it.index("\n## 2. ")])
    kernel_log.rewrite(logged)
    assert page(logged) == before_it.replace("The tiles pay.", PLACEHOLDER).replace(
        PLACEHOLDER, "The tiles pay.", 1
    )


def test_marks_that_are_not_in_order_keep_the_page_as_it_is(logged):
    edit(logged / "KERNEL_LOG.md", "<!-- END STEP 1 -->", "<!-- END STEP 3 -->")
    text = page(logged)
    with pytest.raises(LogError, match="without its BEGIN"):
        kernel_log.rewrite(logged)
    assert page(logged) == text


FORGED = """a table | of | mine, and a mark
<!-- END STEP 1 -->
## 9. a heading
<b>bold</b> `code` [link](http://x) ![i](y) **strong** $x$ ~gone~
- a list
1. another
===
> a quote \\"""


def test_a_prediction_forges_no_mark_no_table_and_no_heading(tree, bench):
    step(tree, bench, words=FORGED)
    text = page(tree)
    found, problems = blocks(text)
    assert ([number_of(one) for one in found], problems) == ([1], [])
    quote = [line for line in text.splitlines() if line.startswith(">")]
    assert len(quote) == len(FORGED.splitlines())
    bare = "".join(re.sub(r"\\.", "", line[1:]) for line in quote)  # without what is escaped
    assert not set(bare) & set("<>[]`*|$~\\")
    assert quote[-4:-1] == ["> \\- a list", "> 1\\. another", "> \\==="]
    learn(tree, 1)
    assert check(tree) == []


def test_words_of_the_kernel_and_the_machine_cannot_forge_either(tree, bench):
    bench.status["tiled\n"] = ("failed", "| <!-- END STEP 1 --> |\n## 7. `x`")
    bench.card = Gpu("a | b <!-- END STEP 1 -->", "1", "0" * 16, 90, 1, 1.0, 1.0, 1)
    step(tree, bench, TILED)
    text = page(tree)
    assert len(blocks(text)[0]) == 1
    assert text.count("<!--") == 2
    learn(tree, 1)
    assert check(tree) == []


# -- the check


def test_a_log_without_steps_says_so(tree):
    (tree / "KERNEL_LOG.md").write_text(HEAD)
    assert problem(tree, "no step", "make log")


def test_the_page_must_be_there(logged):
    (logged / "KERNEL_LOG.md").unlink()
    problem(logged, "KERNEL_LOG.md", "cannot be read")


def folder(tree, number):
    return tree / "kernel-log" / f"{number:04}"


def change_record(tree, number, change):
    path = folder(tree, number) / "record.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_a_changed_prediction_breaks_the_chain(logged):
    change_record(logged, 1, lambda data: data.update(prediction="I knew it all the time"))
    found = check(logged)
    assert any("step 2: the chain is broken" in one for one in found)
    assert any("step 1 is not what was recorded" in one for one in found)


def test_the_last_record_cannot_be_changed_without_the_page_showing_it(logged):
    change_record(logged, 2, lambda data: data.update(date="2030-02-02T00:00:00+00:00"))
    problem(logged, "step 2 is not what was recorded", "shown", "recorded")


def test_a_removed_step_is_seen(logged, bench):
    (logged / TILED).write_text("tiled\nslow\n")
    step(logged, bench, TILED)
    learn(logged, 3)
    assert check(logged) == []
    for path in folder(logged, 2).iterdir():
        path.unlink()
    folder(logged, 2).rmdir()
    found = check(logged)
    assert any("step 2 is missing" in one for one in found)
    folder(logged, 3).rename(folder(logged, 2))
    found = check(logged)
    assert any("step 2: its record says step 3" in one for one in found)
    assert any("the chain is broken" in one for one in found)


def test_time_cannot_be_changed_apart_from_its_rounds(logged):
    def faster(data):
        data["timing"]["ours"]["median_us"] /= 2

    change_record(logged, 2, faster)
    assert any("do not follow from its rounds" in one for one in check(logged))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": 1}, "Extra inputs"),
        ({"number": 501}, "less than or equal to 500"),
        ({"file": "../x.cu"}, "pattern"),
        ({"status": "wrong"}, "status is not that of the timing"),
        ({"files": {"../x": "0" * 64}}, "wrong names"),
        ({"op": "reduce_sum"}, "is not a file of reduce_sum"),
        ({"size": {"m": 0}}, "greater than 0"),
        ({"counters": [{"name": "<!--"}]}, "counters"),
        ({"schema_version": 2}, "schema_version"),
    ],
    ids=str,
)
def test_an_invalid_record_is_named(logged, change, words):
    change_record(logged, 2, lambda data: data.update(change))
    assert any("step 2: record.json is invalid" in one and words in one for one in check(logged))


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"a": NaN}', "\xff"])
def test_what_is_no_record_is_a_finding_and_no_crash(logged, text):
    (folder(logged, 2) / "record.json").write_bytes(text.encode("latin-1"))
    assert any("step 2: record.json is invalid" in one for one in check(logged))


def test_numbers_that_are_none_are_refused(logged):
    path = folder(logged, 2) / "record.json"
    edit(path, '"bandwidth": 4000000000000.0', '"bandwidth": NaN')
    assert any("record.json is invalid" in one for one in check(logged))


def test_a_snapshot_that_was_changed_removed_or_added_to_is_seen(logged):
    (folder(logged, 2) / "extra.cuh").write_text("x")
    problem(logged, "step 2: extra.cuh does not belong to the snapshot")
    (folder(logged, 2) / "extra.cuh").unlink()
    kernel = folder(logged, 2) / "02_coalesced_shared_tile.cu"
    kernel.write_text("tiled\nbetter\n")
    assert "step 2: 02_coalesced_shared_tile.cu is not the file that was measured" in check(logged)
    kernel.unlink()
    problem(logged, "step 2: 02_coalesced_shared_tile.cu cannot be read")


def test_links_and_large_files_are_not_read(logged, tmp_path):
    kernel = folder(logged, 2) / "02_coalesced_shared_tile.cu"
    other = tmp_path / "other.cu"
    kernel.rename(other)
    kernel.symlink_to(other)
    problem(logged, "step 2: 02_coalesced_shared_tile.cu is a link")
    kernel.unlink()
    kernel.write_bytes(b"x" * (2**18 + 1))
    problem(logged, "has more than 262,144 bytes")
    kernel.unlink()
    os.mkfifo(kernel)
    problem(logged, "is not a regular file")


def test_a_folder_that_is_a_link_is_not_entered(logged, tmp_path):
    folder(logged, 2).rename(tmp_path / "two")
    folder(logged, 2).symlink_to(tmp_path / "two")
    assert "kernel-log/0002 is not a step: remove it" in check(logged)
    (logged / "kernel-log").rename(tmp_path / "log")
    (logged / "kernel-log").symlink_to(tmp_path / "log")
    problem(logged, "kernel-log is a link")


def test_too_many_steps_are_refused(logged):
    for number in range(3, 510):
        folder(logged, number).mkdir()
    problem(logged, "more than 500 steps")


def test_a_prediction_without_a_measurement_is_named(logged):
    (logged / "kernel-log" / "pending.json").write_text("{}")
    problem(logged, "pending.json", "was not measured")


def test_a_step_without_a_prediction_is_named(logged):
    change_record(logged, 2, lambda data: data.update(prediction=" "))
    assert "step 2: its prediction is missing or too short" in check(logged)


def test_a_kernel_that_changed_since_its_step_wants_another(logged):
    (logged / TILED).write_text("tiled\nagain\n")
    problem(logged, TILED, "changed since step 2: `make log`")
    (logged / TILED).unlink()
    assert check(logged) == []


def test_a_step_compared_with_another_one_is_seen(logged):
    change_record(logged, 2, lambda data: data.update(compared_with=0))
    assert any("it was compared with step 0, which is the wrong one" in one for one in check(logged))


def test_lines_that_the_snapshots_do_not_have_are_seen(logged):
    change_record(logged, 2, lambda data: data.update(lines_added=40))
    assert any("wrong line counts in its record; right: 1 added, 1 removed" in one for one in check(logged))


TAMPERED = {
    "a figure": ("30.09 µs", "20.09 µs", "is not what was recorded"),
    "the verdict": (
        "faster than step 1 by 200.0 %",
        "faster than step 1 by 300.0 %",
        "not what was recorded",
    ),
    "a line more": ("**Prediction**", "**Prediction**\n\nmore", "is not what was recorded"),
    "no end": ("<!-- END STEP 2 -->", "", "BEGIN STEP 2 without its END"),
    "no beginning": ("<!-- BEGIN STEP 2 -->", "", "END STEP 2 without its BEGIN"),
    "another number": ("<!-- BEGIN STEP 1 -->", "<!-- BEGIN STEP 7 -->", "END STEP 1 without its BEGIN"),
}


@pytest.mark.parametrize(("old", "new", "words"), TAMPERED.values(), ids=TAMPERED)
def test_a_block_that_was_changed_is_named_with_its_line(logged, old, new, words):
    edit(logged / "KERNEL_LOG.md", old, new)
    found = [one for one in check(logged) if words in one]
    assert found
    assert "KERNEL_LOG.md line " in found[0]


def test_the_first_line_that_differs_is_shown_beside_the_recorded_one(logged):
    edit(logged / "KERNEL_LOG.md", "| time | 90.27 µs | 30.09 µs", "| time | 90.27 µs | 10.09 µs")
    line = 1 + page(logged).split("\n").index("| time | 90.27 µs | 10.09 µs | -66.7 % | graph |")
    problem(logged, f"line {line}: step 2", "shown '| time | 90.27 µs | 10.09 µs", "recorded '| time | 90.27")


def test_a_block_twice_out_of_order_or_of_no_step_is_named(logged):
    text = page(logged)
    first, second = blocks(text)[0]
    one, two = text[first.whole], text[second.whole]
    path = logged / "KERNEL_LOG.md"
    path.write_text(f"{text}\n{two}\n")
    assert any("a second block of step 2" in found for found in check(logged))
    path.write_text(text.replace(two, "@").replace(one, two).replace("@", one))
    assert any("step 1 comes after step 2" in found for found in check(logged))
    path.write_text(f"{text}\n<!-- BEGIN STEP 3 -->\nmine\n<!-- END STEP 3 -->\n{LEARNED}\nwords\n")
    problem(logged, "step 3 has no record")
    path.write_text(text.replace(two, ""))
    problem(logged, "the block of step 2 is missing")


def test_a_step_without_words_is_named(tree, bench):
    step(tree, bench)
    problem(tree, "step 1 has no words", "What I learned")
    edit(tree / "KERNEL_LOG.md", LEARNED, "### Nothing")
    problem(tree, "step 1 has no words")
    edit(tree / "KERNEL_LOG.md", "### Nothing", LEARNED)
    learn(tree, 1, "")
    problem(tree, "step 1 has no words")


TRUE = (
    "30.09 µs in place of 90.3 us", "30 us", "three times: 3.0x, 3.00\u00d7", "200 % faster", "167 % of it",
    "64 registers", "71.5 % of the L2", "4 TB/s is its peak", "64 x 64 tiles of 16-byte loads, 128x256",
    "2,112 bytes, 2.1 KB or 2.06 KiB", "0.030 ms", "12 of 13 blocks", "step 2 is 1.6667x the baseline",
    "I predicted 35 %",
)  # fmt: skip
FALSE = ("29 us", "**2.9x**", "301 %", "65 registers", "72.5 %", "5 TB/s", "0.031 ms", "2.07 KiB", "35 %")


@pytest.mark.parametrize("words", TRUE)
def test_measured_numbers_may_be_said_at_the_precision_that_is_printed(tree, bench, words):
    step(tree, bench, NAIVE, "at most 35 % of the peak")
    step(tree, bench, TILED)
    learn(tree, 1)
    learn(tree, 2, words)
    assert check(tree) == []


@pytest.mark.parametrize("words", FALSE)
def test_a_number_with_a_unit_that_nobody_measured_is_named(tree, bench, words):
    step(tree, bench, NAIVE, "at most 35 % of the peak")
    step(tree, bench, TILED)
    learn(tree, 1)
    learn(tree, 2, f"so\n{words} it is")
    line = 1 + page(tree).split("\n").index(f"{words} it is")
    problem(tree, f"KERNEL_LOG.md line {line}: no step up to step 2 measured {words.strip('*')}")


def test_what_a_later_step_measured_is_not_known_before_it(logged):
    learn_text = page(logged).replace("The tiles pay.", "30.09 us come later", 1)
    (logged / "KERNEL_LOG.md").write_text(learn_text)
    problem(logged, "no step up to step 1 measured 30.09 us")
    (logged / "KERNEL_LOG.md").write_text(page(logged).replace("30.09 us come later", "fine", 1))
    edit(logged / "KERNEL_LOG.md", "# Kernel log", "# Kernel log: 7.25 us")
    problem(logged, "line 1: no step of the log measured 7.25 us")


def test_a_page_of_another_encoding_or_size_is_refused(logged):
    (logged / "KERNEL_LOG.md").write_bytes(b"\xff\xfe")
    problem(logged, "is not UTF-8")
    (logged / "KERNEL_LOG.md").write_bytes(b"x" * (2**22 + 1))
    problem(logged, "has more than")


def test_numbers_and_marks_without_end_are_no_trouble(logged):
    path = folder(logged, 2) / "record.json"
    edit(path, '"bandwidth": 4000000000000.0', f'"bandwidth": {"9" * 400}')
    assert any("step 2" in one or "0002/record.json" in one for one in check(logged)), check(logged)
    (logged / "KERNEL_LOG.md").write_text(
        "<!-- END STEP 1 -->\n" * 150_000 + "1," * 500_000 + "9" * 90_000 + " us"
    )
    assert any("END STEP 1 without its BEGIN" in one for one in check(logged))


def test_many_findings_are_cut_short(logged):
    learn_text = "\n".join(f"{i}.5 ms" for i in range(500))
    (logged / "KERNEL_LOG.md").write_text(page(logged).replace("The tiles pay.", learn_text, 1))
    assert len(check(logged)) == 100


# -- parts


def test_the_summary_counts_steps_that_were_slower_or_wrong(logged, bench):
    (logged / TILED).write_text("tiled\nslow\n")
    step(logged, bench, TILED)
    bench.status["tiled\n"] = ("wrong", "all of it")
    (logged / TILED).write_text("tiled\n")
    step(logged, bench, TILED)
    assert summary(logged) == {"cuda_matmul": Steps(steps=4, wrong=1, faster=1, slower=1, same=0)}
    assert summary(logged.parent) == {}


def test_a_step_is_compared_with_the_last_right_one_of_its_operation(tree, bench):
    step(tree, bench, NAIVE)
    earlier = steps(tree)
    assert before(earlier, "cuda_matmul") == earlier[0]
    assert before(earlier, "reduce_sum") is None


def test_records_survive_a_round_trip_with_every_digit():
    rng = random.Random(20240229)
    for _ in range(50):
        rounds = [[rng.uniform(1e-3, 1e6) for _ in range(7)] for _ in range(3)]
        arms = [Measured(name="a", status="ok", rounds_us=one) for one in rounds]
        made = Timing(**timing_from("TB/s", "graph", 2**30, *arms))
        assert Timing.model_validate_json(made.model_dump_json()) == made
        ratios = [b / a for b, a in zip(rounds[1], rounds[0], strict=True)]
        assert made.against_previous.ratio == statistics.median(ratios)
        assert made.ours.rate == 2**30 / statistics.median(rounds[0]) / 1e6


def test_a_right_kernel_without_rounds_is_no_record():
    arm = Measured(name="ours", status="ok")
    with pytest.raises(ValidationError, match="has no rounds"):
        Timing(**timing_from("TB/s", "graph", 1, arm, None, None))


@pytest.mark.parametrize(
    ("file", "op"),
    [
        ("cuda-kernels/vector_add/01_one_element.cu", "vector_add"),
        ("cuda-kernels/reduction/x.cu", "reduce_sum"),
        (NAIVE, "cuda_matmul"),
        ("triton-kernels/swiglu.py", "swiglu"),
        ("triton-kernels/lab.py", None),
        ("cuda-kernels/wrong/x.cu", None),
        ("cuda-kernels/matmul/x.cu\n", None),
        ("hardware-survey/x.py", None),
    ],
)
def test_a_file_belongs_to_one_operation_of_the_bench(file, op):
    assert op_of(file) == op


def test_moved_lines_are_no_changed_lines():
    assert changed_lines(b"a\nb\nc\n", b"c\na\nb\nd\nd\n") == (2, 0)
    assert changed_lines(b"a\na\n", b"a\n") == (0, 1)


def test_numbers_know_shapes_from_factors_and_units_from_words():
    assert [text for text, _ in numbers("128x256, 64 x 64, 3x, 5 usage, 16-byte, v1.5 ms, 7 **%**")] == [
        "3x",
        "7 **%",
    ]


def test_a_figure_is_known_at_the_precision_of_the_text():
    known = Known()
    known.add("%", -16.74)
    assert known.has("%", 16.7, 0.05)
    assert known.has("%", 17, 0.5)
    assert not known.has("%", 16.8, 0.05)
    assert not known.has("us", 16.7, 0.05)


def test_the_courses_own_page_is_the_head_of_a_new_one():
    assert (ROOT / "gpu-programming" / "KERNEL_LOG.md").read_text("utf-8").startswith(HEAD)
    assert len(HEAD.splitlines()) == 6
    assert render(HEAD, []) == HEAD


def test_every_operation_of_the_log_is_one_of_the_bench():
    from grader.measure.bench import capstone as bench_capstone

    assert set(Record.model_fields["op"].annotation.__args__) == {op.name for op in bench_capstone.ALL}


def test_a_block_of_a_step_is_the_same_each_time(logged):
    one, two = steps(logged)
    assert shown(two, one) == shown(two, one) != shown(two, None)
