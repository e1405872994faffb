"""The figures made from records: each number is that of the record it names, and what is missing says so."""

import dataclasses
import json
import math
import multiprocessing
from importlib.metadata import version

import pytest

from grader.codegen import ptx
from grader.course import catalog
from grader.course.lines_of_code import lines_with_helpers
from grader.measure.bench import tuning
from grader.site.figures import autotuner, choose_your_stack, ptx_lines, records, roofline
from grader.site.figures.excerpts import definition, excerpt
from grader.site.figures.patterns import PATTERNS
from grader.tests.site.synthetic_tuning import synthetic


@pytest.fixture(scope="module")
def roofs():
    return roofline.compute()


@pytest.fixture(scope="module")
def stack():
    return choose_your_stack.compute()


@pytest.fixture
def tuned(tmp_path):
    """The autotuner's figure of a record that nobody measured."""
    record, path = synthetic(), tmp_path / "synthetic.json"
    record.save(path)
    return record, autotuner.compute(path)


def raw(source: str) -> dict:
    return json.loads((catalog.ROOT / source).read_text("utf-8"))


def times_in(source: str) -> set[float]:
    """Every median of a record, read as plain JSON."""
    record = raw(source)
    if "timing" in record:
        return {record["timing"]["ours"]["median_us"]}
    return {arm["median_us"] for op in record["ops"] for size in op["sizes"] for arm in size["arms"].values()}


def test_every_mark_of_the_roofline_is_a_time_of_its_record(roofs):
    marks = [point for kernel in roofs["kernels"] for point in kernel["points"]]
    assert len(marks) > 100
    for point in marks:
        assert point["time"]["value"] in times_in(point["time"]["source"])
        rate = point["flops"]["value"] / point["bytes"]["value"]
        assert math.isclose(rate, point["intensity"], rel_tol=1e-9)
        assert 0 < point["share"]["value"] <= 100


def test_every_kernel_that_a_record_timed_is_on_the_roofline(roofs):
    drawn = {(kernel["name"], kernel["file"]) for kernel in roofs["kernels"]}
    seen = 0
    for path in sorted((records.SOLUTIONS / "results").glob("*-bench-*.json")):
        for op in json.loads(path.read_text("utf-8"))["ops"]:
            seen += 1
            assert (op["name"].replace("_", " "), op["file"]) in drawn
    for path in sorted((records.CAPSTONE / "kernel-log").glob("*/record.json")):
        step = json.loads(path.read_text("utf-8"))
        seen += 1
        assert (step["op"].replace("_", " "), f"gpu-programming/{step['file']}") in drawn
    assert seen > 20


def test_the_share_of_a_mark_is_the_one_that_the_bench_recorded(roofs):
    checked = 0
    for kernel in roofs["kernels"]:
        for point in kernel["points"]:
            record = raw(point["share"]["source"])
            for op in record.get("ops", ()):
                for size in op["sizes"]:
                    for arm in size["arms"].values():
                        if arm["median_us"] == point["time"]["value"]:
                            checked += 1
                            assert arm["percent_of_limit"] == pytest.approx(point["share"]["value"])
    assert checked > 100


def test_the_roofs_are_those_of_the_survey(roofs):
    survey = raw("solutions/gpu-programming/hardware-survey/survey.json")["measured"]
    for roof in roofs["roofs"]:
        assert roof["bandwidth"]["value"] == survey["dram_read"] / 1e12
        (row,) = [one for one in survey["matmul"] if one["dtype"] == roof["dtype"]]
        assert roof["peak"]["value"] == pytest.approx(row["flops_per_s"] / 1e12)


def test_a_lab_is_on_the_roofline_or_named_as_missing(roofs):
    numbered = {f"lab {entry.number}" for entry in catalog.find()} | {"capstone"}
    assert set(roofs["labs"]) | set(roofs["without"]) == numbered
    assert not set(roofs["labs"]) & set(roofs["without"])


def test_of_two_runs_of_a_kernel_the_newer_one_is_shown():
    kernels = records.kernels()
    every = [one for one in (*records.bench(), *records.logged()) if one.file]
    assert len({(one.file, one.op, one.size) for one in kernels}) == len(kernels) < len(every)
    for one in kernels:
        same = [two for two in every if (two.file, two.op, two.size) == (one.file, one.op, one.size)]
        assert one.date == max(two.date for two in same)


def options(stack):
    return [one for pattern in stack["patterns"] for size in pattern["sizes"] for one in size["options"]]


@pytest.mark.slow
def test_every_speed_of_the_stack_is_a_ratio_of_its_record(stack):
    checked = 0
    for one in options(stack):
        record, speed = raw(one["speed"]["source"]), one["speed"]["value"]
        if one["way"] == choose_your_stack.LIBRARY:
            assert speed == 1
            continue
        arms = [arm for op in record.get("ops", ()) for size in op["sizes"] for arm in size["arms"].values()]
        known = {arm["ratio"] for arm in arms} or {record["timing"]["ours"]["of_baseline"]["ratio"]}
        assert speed in known
        checked += 1
    assert checked > 100


def test_lines_are_those_of_the_files_that_are_named(stack):
    own = [one for one in options(stack) if one["files"]]
    assert own
    for one in own:
        assert one["lines"] == lines_with_helpers(records.SOLUTIONS / one["files"][0])
        assert one["files"][0].endswith(one["name"])


def test_a_call_is_one_line_and_its_compiled_form_three(stack):
    lines = {way: {one["lines"] for one in options(stack) if one["way"] == way} for way in stack["ways"][:2]}
    assert lines == {choose_your_stack.LIBRARY: {1}, choose_your_stack.COMPILER: {3}}


def test_what_is_advised_is_the_least_code_that_is_about_as_fast_as_the_fastest(stack):
    seen = set()
    for pattern in stack["patterns"]:
        for size in pattern["sizes"]:
            speeds = [one["speed"]["value"] for one in size["options"]]
            assert speeds[size["fastest"]] == max(speeds)
            enough = max(speeds) * (1 - 1 / stack["close"])
            assert speeds[size["pick"]] >= enough
            assert all(speed < enough for speed in speeds[: size["pick"]])
            seen.add(size["options"][size["pick"]]["way"])
    assert len(seen) > 2, "no pattern is worth another way than the rest"


def test_every_way_of_every_size_is_measured_or_says_that_it_was_not(stack):
    assert stack["patterns"]
    for pattern in stack["patterns"]:
        for size in pattern["sizes"]:
            there = {one["way"] for one in size["options"]}
            missing = {one["way"] for one in size["missing"]}
            assert there
            assert there | missing == set(stack["ways"])
            assert not there & missing
            assert all(one["words"].startswith("not measured") for one in size["missing"])


def test_a_pattern_without_a_record_is_an_error(monkeypatch):
    unknown = dataclasses.replace(PATTERNS[0], ops=("no_such_op",))
    monkeypatch.setattr(choose_your_stack, "PATTERNS", (unknown,))
    with pytest.raises(ValueError, match="no record has no_such_op"):
        choose_your_stack.compute()


def test_every_cell_of_the_autotuner_is_the_rate_of_its_record(tuned):
    record, data = tuned
    assert {one["name"] for one in data["kernels"]} == {one.kernel for one in record.kernels}
    for one in record.kernels:
        (shown,) = [kernel for kernel in data["kernels"] if kernel["name"] == one.kernel]
        assert {config["name"] for config in shown["configs"]} == {config.name for config in one.configs}
        for size, cells in zip(one.sizes, shown["sizes"], strict=True):
            assert (cells["picked"], cells["tried"]) == (size.picked, size.tried)
            assert cells["library"]["value"] == size.times.arms["torch.mm NN"].rate
            for name, cell in cells["rates"].items():
                arm = size.times.arms[name]
                assert (cell["value"], cell["us"]["value"]) == (arm.rate, arm.median_us)
                assert [end["value"] for end in cell["spread"]] == [
                    min(arm.rounds_us[0]),
                    max(arm.rounds_us[0]),
                ]


def test_a_config_that_does_not_fit_has_its_error_and_no_rate(tuned):
    _, data = tuned
    refused = [
        (kernel, config) for kernel in data["kernels"] for config in kernel["configs"] if config["error"]
    ]
    assert refused
    for kernel, config in refused:
        assert "out of resource" in config["error"]
        assert all(config["name"] not in size["rates"] for size in kernel["sizes"])


def test_a_config_of_the_list_is_marked_on_its_line_of_the_source(tuned):
    _, data = tuned
    for kernel in data["kernels"]:
        lines = {line["number"]: line["text"] for line in kernel["triton"]}
        own = [config for config in kernel["configs"] if config["own"]]
        assert own
        for config in own:
            (number,) = config["listed"]
            assert ", ".join(map(str, config["tile"])) in lines[number]
        assert not any(config["listed"] for config in kernel["configs"] if not config["own"])


def test_the_cuda_kernel_says_the_constants_that_its_file_has(tuned):
    _, data = tuned
    lines = autotuner.CUDA.read_text("utf-8").splitlines()
    cuda = data["cuda"]
    assert set(cuda["constants"]) == {"BLOCK_M", "BLOCK_N", "BLOCK_K", "CONSUMERS", "STAGES"}
    for name, one in cuda["constants"].items():
        assert f"{name} = {one['value']}" in lines[one["line"] - 1]
    for part in cuda["parts"]:
        assert part
        assert all(line["text"].strip() == lines[line["number"] - 1].strip() for line in part)


def test_the_static_picture_frames_the_choice_and_says_what_does_not_fit(tuned):
    _, data = tuned
    picture = autotuner.draw(data)
    assert "does not fit" in picture
    assert picture.count('class="none s-ink"') == 1


@pytest.mark.usefixtures("tuned")
def test_ptx_of_another_source_is_refused(tmp_path, monkeypatch):
    stored = json.loads(ptx_lines.STORED.read_text("utf-8"))
    other = tmp_path / "ptx.json"
    other.write_text(json.dumps(stored | {"file_sha256": "0" * 64}))
    monkeypatch.setattr(ptx_lines, "STORED", other)
    with pytest.raises(ValueError, match=r"python -m grader\.site\.figures\.ptx_lines"):
        autotuner.compute(tmp_path / "synthetic.json")


PTX = """
    mbarrier.init.shared::cta.b64 [%r1], 1;
$L__BB0_1:                              // an outer loop
    @%p1 cp.async.cg.shared.global [ %r2 + 0 ], [ %rd3 + 64 ], 0x10, %r4;
    cp.async.cg.shared.global [ %r5 + 0 ], [ %rd6 + 0 ], 0x10, %r7;
$L__BB0_2:
    add.s32 %r1, %r1, 1;
    wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1, %f2, %f3}, %rd1, %rd2, %p3, 1, 1, 0, 1;
    @%p2 bra $L__BB0_2;
    @%p9 st.global.v4.b32 [ %rd9 + 16 ], { %r1, %r2, %r3, %r4 };
    bra.uni $L__BB0_1;
"""


def test_the_telling_lines_stand_before_in_and_after_the_inner_loop():
    assert ptx_lines.telling(PTX) == [
        ("before the loop", "mbarrier.init.shared::cta.b64 [%r], 1", 1),
        ("before the loop", "cp.async.cg.shared.global [ %r ], [ %rd ], 0x10, %r", 2),
        (
            "in the loop",
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {3 registers}, %rd, %rd, %p, 1, 1, 0, 1",
            1,
        ),
        ("after the loop", "st.global.v4.b32 [ %rd ], {4 registers}", 1),
    ]


def test_the_stored_lines_of_every_config_multiply_in_a_loop():
    stored = json.loads(ptx_lines.STORED.read_text("utf-8"))
    seen = 0
    for kernel in stored["kernels"].values():
        for config in kernel["configs"].values():
            seen += 1
            inside = [
                stored["lines"][index] for where, index, _ in config["lines"] if where == ptx_lines.LOOP
            ]
            assert any(line.startswith("wgmma.mma_async") for line in inside)
            assert sum(many for *_, many in config["lines"]) == sum(config["counts"].values()) < config["of"]
    assert seen > 50


@pytest.mark.slow
def test_the_stored_lines_are_what_the_compiler_gives():
    stored = json.loads(ptx_lines.STORED.read_text("utf-8"))
    if version("triton") != stored["triton"]:
        pytest.skip(f"the lines were compiled by Triton {stored['triton']}, here is {version('triton')}")
    part, source = list(ptx_lines.parts().items())[1]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:  # that process can launch nothing afterwards
        found = pool.apply(ptx_lines.compile_all, (part, source, 0, 40))
    assert found
    for _, kernel, config, text in found:
        kept = stored["kernels"][kernel]["configs"][config]
        lines = [(where, stored["lines"][index], many) for where, index, many in kept["lines"]]
        assert ptx_lines.telling(text) == lines
        assert ptx.counts(text) == kept["counts"]


def test_an_excerpt_that_the_source_no_longer_has_is_an_error(tmp_path):
    path = tmp_path / "a.cu"
    path.write_text("    one();\n    two();\n")
    assert [line["text"] for line in excerpt(path, "one", "two")] == ["one();", "two();"]
    with pytest.raises(ValueError, match=r"a\.cu has no lines from 'one' to 'three'"):
        excerpt(path, "one", "three")


def test_a_definition_comes_without_its_docstring_and_the_marks_of_tasks(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('@d\ndef f():\n    """Words."""\n    # BEGIN TODO 1: x (about 1 lines)\n    return 1\n')
    assert [line["number"] for line in definition(path, "f")] == [1, 2, 5]
    with pytest.raises(KeyError, match="no g"):
        definition(path, "g")


def test_the_stored_run_is_of_todays_source_and_ran_every_stored_config():
    record = tuning.TuningRecord.read(autotuner.RECORD)
    stored = json.loads(ptx_lines.STORED.read_text("utf-8"))
    assert record.machine.gpu
    assert {one.kernel for one in record.kernels} == set(stored["kernels"])
    for one in record.kernels:
        assert one.file_sha256 == stored["file_sha256"]
        assert {config.name for config in one.configs} == set(stored["kernels"][one.kernel]["configs"])
        for config in one.configs:
            assert config.error or config.instruction
        for size in one.sizes:
            assert size.picked in size.tried
