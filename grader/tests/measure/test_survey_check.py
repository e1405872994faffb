"""Each contradiction in a survey is found, and its README and plots follow its record."""

import json
import os
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from grader.measure.bench import charts
from grader.measure.drawn_from import described
from grader.measure.survey import command as survey
from grader.measure.survey import plots as survey_plots
from grader.measure.survey.check import problems, readme_problems
from grader.measure.survey.record import RECORD, SurveyRecord, read
from grader.measure.survey.sources import description, stale
from grader.measure.survey.table import LABEL, render, rewrite, survey_table
from grader.tests.measure.survey_fakes import ATTRIBUTES, CARD, DRAM, bench_of, survey_of

BEGIN, END = f"<!-- BEGIN {LABEL} -->", "<!-- END -->"
SVG = "{http://www.w3.org/2000/svg}"
TEMPLATE = (survey.ROOT / survey.FOLDER / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def record():
    return survey_of()


@pytest.fixture
def folder(record, tmp_path):
    """The folder of a survey, without plots."""
    made = tmp_path / "hardware-survey"
    made.mkdir()
    record.save(made / RECORD)
    return made


def write_bench(folder, lab, bench):
    (folder.parent / lab).mkdir(exist_ok=True)
    bench.save(folder.parent / lab / "bench.json")


def changed(record, path, value):
    """The record with one value of its JSON changed, `measured.reads.0.bytes_per_s`."""
    data = json.loads(record.model_dump_json())
    at = data
    *way, last = (int(word) if word.isdigit() else word for word in path.split("."))
    for word in way:
        at = at[word]
    before = at[last]
    at[last] = value(before) if callable(value) else value
    assert at[last] != before, "nothing was changed"
    return SurveyRecord.model_validate_json(json.dumps(data))


def test_a_sound_survey_has_no_problem(record):
    assert problems(record) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("date", "yesterday", "the date is not in ISO 8601 format"),
        ("date", "2026-01-02T03:04:05", "the date has no time zone"),
        ("date", "2999-01-02T03:04:05+00:00", "the date is in the future"),
        ("attributes.capability", 80, "compute capability: 90 for the GPU, 80 in its attributes"),
        ("attributes.sm_mhz", 2000, "highest SM clock: 1000 MHz for the GPU, 2000 in its attributes"),
        ("attributes.memory_mhz", 999, "the theory does not follow from the clocks and units of this GPU"),
        ("theory.flops_per_s.bf16", 1e15, "the theory does not follow from the clocks and units of this GPU"),
        ("theory.ridges.fp32", 1.0, "the theory does not follow from the clocks and units of this GPU"),
        ("theory.source", "a friend", "the theory is not that of compute capability 90"),
        ("theory.flop_per_clock.fp16", 8192, "the theory is not that of compute capability 90"),
        ("measured.reads", lambda curve: curve[::-1], "the working sets of reads are not in ascending order"),
        (
            "measured.copies.3",
            lambda _: survey_of().measured.copies[2].model_dump(),
            "copies are not in ascending order",
        ),
        ("measured.reads.5.bytes_per_s", 3e12, "the rate of reads at 393216 bytes does not follow"),
        ("measured.library_copy.bytes_per_s", 1.1e12, "the rate of copy_ of torch at 268435456 bytes"),
        ("measured.reads.0.bytes_moved", lambda moved: moved + 1, "bytes moved are not whole working sets"),
        ("measured.reads.0.timed.rounds_us.0", 900.0, "the spread of timing 1 is not that of its rounds"),
        ("measured.launch.round_trip.spread_us.2", 99.0, "the spread of timing"),
        ("measured.matmul.4.flops_per_s", 1e14, "the rate of matmul in bf16 does not follow"),
        ("measured.matmul.4.side", None, "matmul in bf16: the status ok does not agree with its figures"),
        (
            "measured.matmul.0.status",
            "failed",
            "matmul in fp64: the status failed does not agree with its figures",
        ),
        ("measured.matmul", lambda rates: rates[1:], "matmul was not measured once in each of fp64, fp32,"),
        ("measured.l2_read", 4.5e12, "the plateau l2_read does not follow from its curve"),
        ("measured.l2_copy", None, "the plateau l2_copy does not follow from its curve"),
        ("measured.dram_copy", 1.6e12, "the plateau dram_copy does not follow from its curve"),
        ("measured.dram_read", 2.2e12, "the DRAM bandwidth, dram_read, is 110 % of what theory allows"),
        ("measured.dram_read", 5e10, "the DRAM bandwidth, dram_read, is 2 % of what theory allows"),
        ("measured.dram_read", 5e12, "reads from the L2 cache are not faster than from DRAM"),
        (
            "measured.ridges.bf16",
            100.0,
            "a ridge is not the rate of its dtype divided by the bandwidth of DRAM",
        ),
        ("measured.ridges", {}, "a ridge is not the rate of its dtype divided by the bandwidth of DRAM"),
        ("measured.matmul.5.flops_per_s", 9e14, "the rate of matmul in fp8 is 110 % of what theory allows"),
    ],
)
def test_what_contradicts_itself_or_physics_is_said(record, path, value, said):
    found = problems(changed(record, path, value))
    assert any(said in one for one in found), found


def test_a_node_of_a_graph_slower_than_a_round_trip_is_said(record):
    launch = record.measured.launch
    swapped = launch.model_copy(update={"graph_node": launch.round_trip, "round_trip": launch.graph_node})
    measured = record.measured.model_copy(update={"launch": swapped})
    assert problems(record.model_copy(update={"measured": measured})) == [
        "a node of a CUDA graph takes longer than a launch that is waited for"
    ]


def test_a_rate_in_a_dtype_that_the_gpu_cannot_do_is_said():
    attributes = ATTRIBUTES.model_copy(update={"capability": 80})
    found = problems(survey_of(attributes=attributes, card=replace(CARD, capability=80)))
    assert "matmul in fp8 has a rate, but this GPU does not support the dtype" in found


def test_a_rate_that_is_missing_needs_a_reason(record):
    rates = [one.model_copy() for one in record.measured.matmul]
    rates[0] = rates[0].model_copy(
        update={"status": "failed", "side": None, "flops_per_s": None, "timed": None}
    )
    ridges = {dtype: ridge for dtype, ridge in record.measured.ridges.items() if dtype != "fp64"}
    measured = record.measured.model_copy(update={"matmul": rates, "ridges": ridges})
    without = record.model_copy(update={"measured": measured})
    assert problems(without) == ["matmul in fp64 has neither a rate nor a reason"]
    assert "| fp64 | - | failed |" in render(without)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema_version", 2),
        ("measured.dram_read", float("nan")),
        ("measured.dram_read", float("inf")),
        ("measured.dram_read", -1.0),
        ("measured.reads.0.timed.rounds_us", []),
        ("measured.reads.0.working_set_bytes", 10**400),
        ("attributes.memory_mhz", 2**40),
        ("attributes.extra", 1),
        ("machine.gpu", None),
        ("machine.gpu.bandwidth", "fast"),
        ("machine.gpu.memory_bytes", 10**400),
        ("machine.gpu.bandwidth", float("inf")),
        ("machine.gpu.more", 1),
    ],
)
def test_numbers_that_no_gpu_has_and_words_that_no_record_has_are_refused(record, folder, path, value):
    data = json.loads(record.model_dump_json())
    at = data
    *way, last = (int(word) if word.isdigit() else word for word in path.split("."))
    for word in way:
        at = at[word]
    at[last] = value
    (folder / RECORD).write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"^survey\.json is not a record of make survey: \S"):
        read(folder)


def test_what_is_no_record_is_said_in_words(folder):
    record = folder / RECORD
    record.write_text("{")
    with pytest.raises(ValueError, match=r"survey\.json is not a record of make survey: Invalid JSON"):
        read(folder)
    record.write_text(" " * (2**20 + 1))
    with pytest.raises(ValueError, match=r"survey\.json has more than 1,048,576 bytes"):
        read(folder)
    record.unlink()
    with pytest.raises(ValueError, match=r"there is no survey\.json: run `make survey`"):
        read(folder)
    record.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"survey\.json is a link"):
        read(folder)
    record.unlink()
    os.mkfifo(record)
    with pytest.raises(ValueError, match=r"survey\.json is not a regular file"):
        read(folder)


def test_a_record_comes_back_as_it_was_written_and_leaves_no_half(record, folder):
    assert read(folder) == record
    assert [path.name for path in folder.iterdir()] == [RECORD]


def test_the_courses_readme_has_one_region_that_says_it_is_empty(record):
    assert TEMPLATE.count(BEGIN) == 1
    assert f"{BEGIN}\nnot measured yet: run `make survey`\n{END}" in TEMPLATE
    assert "not measured yet" not in rewrite(TEMPLATE, record)


def test_the_table_shows_what_was_measured_beside_theory(record, folder):
    shown = survey_table(folder / RECORD)
    assert shown == render(record)
    assert "| DRAM, reads | 1.500 | 1.500 to 1.500 | 2.000 | 75.0 % | 900 | 300 | 50 |" in shown
    assert "| bf16 | 8192 | 300.0 | 300.0 to 300.0 | 409.6 | 73.2 % | 200 | 900 | 300 | 50 |" in shown
    assert "| launched and waited for | 25.00 | 25.00 to 25.00 |" in shown
    assert "synthetic GPU" in shown


def test_prose_outside_of_the_region_is_kept_byte_for_byte(record, folder):
    path = folder / "README.md"
    path.write_text(TEMPLATE.replace("_your words_", "Mine lies left of it, \\1 and all.\t "))
    survey.write_readme(path, record)
    once = path.read_text()
    assert once.split(BEGIN)[0] + once.split(END, 1)[1] == (
        TEMPLATE.replace("_your words_", "Mine lies left of it, \\1 and all.\t ").split(BEGIN)[0]
        + TEMPLATE.replace("_your words_", "Mine lies left of it, \\1 and all.\t ").split(END, 1)[1]
    )
    assert readme_problems(folder, record) == []
    survey.write_readme(path, record)
    assert path.read_text() == once


def test_a_readme_without_region_gets_one_and_a_missing_one_is_the_courses(record, folder):
    path = folder / "README.md"
    path.write_text("# Mine\n")
    survey.write_readme(path, record)
    assert path.read_text() == f"# Mine\n\n{BEGIN}\n{render(record)}{END}\n"
    path.unlink()
    survey.write_readme(path, record)
    assert path.read_text() == rewrite(TEMPLATE, record)


def test_a_mark_that_lacks_its_end_costs_no_words_of_the_student(record, folder):
    path, text = folder / "README.md", f"# Mine\n\n{BEGIN}\n\nMy own words.\n"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"README\.md line 3: BEGIN survey survey\.json without its END"):
        survey.write_readme(path, record)
    assert path.read_text() == text
    assert readme_problems(folder, record) == ["README.md line 3: BEGIN survey survey.json without its END"]


def test_a_readme_that_says_something_else_is_a_problem(record, folder):
    path = folder / "README.md"
    assert readme_problems(folder, record) == ["README.md is missing: run `make survey REDRAW=1`"]
    good = rewrite("mine", record)
    path.write_text(good.replace("1.500", "1.900"))
    assert "README.md does not agree with survey.json" in readme_problems(folder, record)[0]
    path.write_text(good + good)
    assert readme_problems(folder, record) == ["README.md has 2 regions for the survey; it needs exactly one"]
    path.write_text(good + "_your words_ and _your words_")
    assert readme_problems(folder, record) == ["README.md has 2 answers to write, marked _your words_"]
    path.write_bytes(b"\xff")
    assert "README.md cannot be read" in readme_problems(folder, record)[0]


def test_names_in_a_record_cannot_end_the_region_or_a_cell():
    named = survey_of(card=replace(CARD, name=f"synthetic | {END} GPU\n"))
    assert END not in render(named)
    assert "synthetic" in render(named)


def texts(path):
    return [element.text for element in ElementTree.parse(path).iter(f"{SVG}text")]


def test_plots_show_the_l2_cache_the_ridge_and_the_kernels(folder):
    write_bench(folder, "cuda-kernels", bench_of("$dear_op"))
    written = survey_plots.write(folder)
    assert [path.name for path in written] == ["bandwidth.svg", "matmul.svg", "roofline.svg"]
    bandwidth, matmul, roofline = map(texts, written)
    assert "L2 cache, 8 MiB" in bandwidth
    assert "synthetic GPU, 2026-01-02" in bandwidth
    assert {"fp64", "int8", "300"} <= set(matmul)
    assert {"$dear_op", "200 FLOP/B", "13.3 FLOP/B"} <= set(roofline)


def test_our_arm_gives_the_point_of_a_kernel():
    (op,) = bench_of().ops
    assert op.name == "synthetic_op"
    assert charts.points(op) == [(2.0, pytest.approx(DRAM))]


def test_kernels_of_another_gpu_are_left_out_and_named(folder):
    write_bench(folder, "cuda-kernels", bench_of("here"))
    write_bench(folder, "triton-kernels", bench_of("elsewhere", gpu="another synthetic GPU"))
    roofline = texts(survey_plots.write(folder)[2])
    assert "here" in roofline
    assert "elsewhere" not in roofline
    assert any("triton-kernels/bench.json is of another synthetic GPU" in (text or "") for text in roofline)


def test_the_same_records_give_the_same_bytes_and_other_records_are_noticed(folder):
    assert len(stale(folder)) == 3
    first = {path: path.read_bytes() for path in survey_plots.write(folder)}
    assert stale(folder) == []
    assert {path: path.read_bytes() for path in survey_plots.write(folder)} == first
    write_bench(folder, "cuda-kernels", bench_of())
    assert stale(folder) == ["roofline.svg was drawn from other records: run `make survey REDRAW=1`"]
    survey_plots.write(folder)
    assert stale(folder) == []
    survey_of(card=replace(CARD, driver="1.0")).save(folder / RECORD)
    assert [one.split()[0] for one in stale(folder)] == ["bandwidth.svg", "matmul.svg", "roofline.svg"]


def test_a_plot_names_the_hash_of_each_record(folder):
    write_bench(folder, "triton-kernels", bench_of())
    roofline = survey_plots.write(folder)[2]
    told = described(roofline.read_bytes())
    assert told == description(folder, [RECORD, "triton-kernels/bench.json"])
    assert [part.split(":")[0] for part in told.split("; ")] == [
        "survey.json sha256",
        "triton-kernels/bench.json sha256",
    ]


@pytest.mark.parametrize(
    ("svg", "said"),
    [
        (b"<svg/>", "no description"),
        (b"no svg", "it is not an SVG"),
        (b'<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>', "it declares entities"),
        (b'<!DOCTYPE svg [<!ENTITY % a SYSTEM "file:///etc/passwd"> %a;]><svg/>', "it declares entities"),
    ],
)
def test_a_plot_that_is_no_plain_svg_is_refused(folder, svg, said):
    with pytest.raises(ValueError, match=said):
        described(svg)
    (folder / "matmul.svg").write_bytes(svg)
    assert any(one.startswith("matmul.svg: ") and said in one for one in stale(folder))


def test_a_bad_bench_record_is_named(folder):
    write_bench(folder, "cuda-kernels", bench_of())
    (folder.parent / "cuda-kernels" / "bench.json").write_text("[]")
    with pytest.raises(ValueError, match=r"cuda-kernels/bench\.json is not a record of make bench"):
        survey_plots.write(folder)


def test_a_whole_survey_is_held_against_everything(record, folder):
    survey.redraw(folder)
    answered = (folder / "README.md").read_text().replace("_your words_", "Answered.")
    (folder / "README.md").write_text(answered)
    assert [*problems(record), *readme_problems(folder, record), *stale(folder)] == []
    other = changed(record, "measured.dram_read", 2.2e12)
    other.save(folder / RECORD)
    found = [*problems(other), *readme_problems(folder, other), *stale(folder)]
    assert any("110 % of what theory allows" in one for one in found)
    assert any("README.md does not agree with survey.json" in one for one in found)
    assert sum("was drawn from other records" in one for one in found) == 3
