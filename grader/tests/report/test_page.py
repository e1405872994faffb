"""The page of a graded run: complete, one file, safe to open, and of use to who cannot see its colours."""

import re
from itertools import pairwise

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from grader.cli import report as cli_report
from grader.cli.main import main
from grader.course.items import CODEGEN, CORRECTNESS
from grader.course.spec import Verdict
from grader.report.page import failures, plots, roof, view
from grader.report.page.next_step import next_step
from grader.report.page.render import render
from grader.results import reading
from grader.results.error_map import ErrorMap
from grader.results.findings import FirstWrong, Frame, OpenTodo
from grader.results.models import SCHEMA_VERSION, ItemResult, Results
from grader.results.timing import Round
from grader.tests.helpers.commands import grade, python
from grader.tests.helpers.contrast import contrast
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.html_page import Page
from grader.tests.helpers.result_fakes import record, with_exercises, with_items

RECORDS = ("h200.json", "cpu.json", "h200-capstone.json", "h200-reference.json")
MOST_BYTES = 1_500_000
HOSTILE = (
    "<script>alert('MARK')</script><img src=x onerror=alert(1)>\"'><b style=x>MARK</b>{{ 7 * 7 }}{% raw %}"
    "\x00\x1b[31mred\u202egnorw\u2066\ud800 ]]>&amp;--> " + "long" * 200
)


def failed(item: ItemResult, verdict=Verdict.WRONG, **more) -> ItemResult:
    first = FirstWrong(output="out", index=(0, 3), yours="1", expected="2")
    facts = {
        "where": first.words,
        "first_wrong": first,
        "pattern": "some wrong",
        "cause": "a cause",
        "hint": 2,
    }
    return item.model_copy(update={"verdict": verdict, "points": 0.0, **facts, **more})


def noise(rows=32, columns=32) -> ErrorMap:
    """The map that takes the most bytes to draw."""
    cells = ["".join(str((3 * x + 5 * y) % 10) for x in range(columns)) for y in range(rows)]
    return ErrorMap(output="out", shape=[999, 999], wrong=9, first=[0, 0], box=[0, 9, 0, 9], cells=cells)


@pytest.fixture(scope="module")
def wrong_run(tmp_path_factory):
    """Real answers that are wrong in two ways, graded on the CPU; the folder and what grade printed."""
    folder = tmp_path_factory.mktemp("wrong")
    for lab, file, wrong in (
        ("lab1_elementwise_add", "elementwise_add.py", "grid_one_short"),
        ("lab2_online_softmax", "online_softmax.py", "one_block_and_no_loop"),
    ):
        (folder / "tree" / lab).mkdir(parents=True)
        text = (ROOT / "solutions" / lab / "wrong" / f"{wrong}.py").read_text("utf-8")
        (folder / "tree" / lab / file).write_text(text, "utf-8")
    keyword = "elementwise_add or softmax_forward"
    done = grade("--lab", "1,2", "--from", folder / "tree", "--results", folder, "-k", keyword)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def every_verdict() -> Results:
    """A run of lab 1 in which each verdict is met."""
    verdicts = iter(Verdict)

    def change(item):
        verdict = next(verdicts, Verdict.PASS)
        if verdict is Verdict.PASS:
            return item
        todos = (OpenTodo(line=7, number=1, text="add"),) if verdict is Verdict.NOT_STARTED else ()
        return failed(item, verdict, open_todos=todos, timing=None, kernels=())

    results = record("h200.json")
    return with_items(results.model_copy(update={"labs": results.labs[:1]}), change)


# -- complete


@pytest.mark.parametrize("name", RECORDS)
def test_a_stored_run_becomes_a_page_with_everything_of_it(name):
    results = record(name)
    text = render(results)
    page = Page(text)
    assert len(text.encode()) < MOST_BYTES
    for item in results.items:
        assert item.name.replace(",", ", ") in page.words
    for lab in results.labs:
        assert any(attributes.get("id") == lab.folder for _, attributes in page.tags)
        for exercise in lab.exercises:
            assert exercise.file_sha256 in page.words
    facts = [results.seed, results.machine.torch, results.machine.triton, results.assurance, results.date]
    facts += [results.command, getattr(results.machine.gpu, "driver", "no GPU")]
    for fact in facts:
        assert str(fact) in page.words


def test_a_timed_shape_is_drawn_with_each_of_its_rounds():
    results = record("h200.json")
    timed = [item.timing for item in results.items if item.timing]
    assert timed
    for timing in timed:
        plot = plots.rounds_plot(timing)
        assert len(plot.points) == len(timing.rounds)
        assert all(0 <= x <= plots.WIDTH and 0 <= y <= plots.HEIGHT for x, y in plot.points)
        assert {line.kind for line in plot.lines} == {"median", "passing", "full"}
    dots = [circle for circle in Page(render(results)).all("circle") if circle.get("r") == "2.4"]
    assert len(dots) == sum(len(timing.rounds) for timing in timed)


def test_the_lines_of_the_score_are_drawn_where_the_record_has_them():
    (timing, *_) = (item.timing for item in record("h200.json").items if item.timing)
    lines = {"zero_at_percent": 40.0, "passing_at_percent": 70.0, "full_at_percent": 90.0}
    plot = plots.rounds_plot(timing.model_copy(update=lines))
    height = {line.kind: line.y for line in plot.lines}
    assert height["median"] < height["full"] < height["passing"] < plots.HEIGHT
    places = sorted(line.name_y for line in plot.lines)
    assert all(b - a >= plots.NEAREST for a, b in pairwise(places))
    assert "passing at 70 %" in plot.words


def test_a_round_without_a_ratio_is_left_out_and_no_round_gives_no_plot():
    (timing, *_) = (item.timing for item in record("h200.json").items if item.timing)
    broken = (Round(reference_us=(700.0, 700.0), student_us=(1.0, 1.0)),)
    more = timing.model_copy(update={"rounds": timing.rounds + broken})
    assert len(plots.rounds_plot(more).points) == len(timing.rounds)
    assert plots.rounds_plot(timing.model_copy(update={"rounds": broken})) is None


BY_ARITHMETIC = {"matmul", "layer_norm_linear_forward"}


def test_shares_of_the_roof_are_those_of_the_least_time():
    results = record("h200.json")
    rows = roof.under_the_roof(results)
    assert len(rows) == sum(item.timing is not None for item in results.items) > 0
    assert all(0 < row.share < 100 for row in rows)
    assert {row.limit for row in rows} == {"memory", "arithmetic"}
    assert {row.exercise for row in rows if row.limit == "arithmetic"} == BY_ARITHMETIC
    assert roof.plot(record("cpu.json")) is None
    assert "Roofline of this GPU" in render(results)
    assert "Roofline of this GPU" not in render(record("cpu.json"))


def test_findings_on_generated_code_are_listed_for_each_config():
    results = record("h200.json")
    kernels = {kernel.name + kernel.config for item in results.items for kernel in item.kernels}
    words = Page(render(results)).words.replace("\n", "")
    assert kernels
    assert all(kernel in words for kernel in kernels)


# -- failures


def test_a_wrong_answer_is_shown_with_its_values_its_cause_and_a_map(wrong_run):
    results = reading.read(wrong_run[0] / "results.json")
    wrong = [item for item in results.items if item.verdict is Verdict.WRONG and item.kind == CORRECTNESS]
    assert {item.error_map is not None for item in wrong} == {True}
    page = Page(render(results))
    for item in wrong:
        place, yours, expected = re.fullmatch(r"(.*?) {3}yours (.*) {3}expected (.*)", item.where).groups()
        assert item.first_wrong.words == item.where
        assert all(value in page.words for value in (place, yours, expected, item.pattern, item.cause))
    maps = [svg["aria-label"] for svg in page.all("svg") if svg.get("aria-label", "").startswith("Error map")]
    assert len(maps) >= len(wrong)
    (tail,) = {item.error_map.box[2] for item in wrong if item.name == "n=65537,fp32"}
    assert any(f"within {tail} to 65536" in words for words in maps)
    assert "not looked at until every case" in page.words


def test_results_made_before_there_were_maps_still_become_a_page(wrong_run):
    results = reading.read(wrong_run[0] / "results.json")
    text = render(with_items(results, lambda item: item.model_copy(update={"error_map": None})))
    assert "WRONG/UNWRITTEN" in text
    assert "Error map" not in text


def test_every_verdict_has_its_word_and_a_mark_that_is_not_its_colour(every_verdict):
    text = render(every_verdict)
    met = {item.verdict for item in every_verdict.items}
    assert met == set(Verdict)
    for verdict in met:
        word = verdict.value.replace("_", " ")
        assert re.search(rf'href="#v-{view.shape_of(verdict)}"/></svg>\d+ {word}<', text), word
    drawn = dict(re.findall(r'<symbol id="v-(\w+)"[^>]*>(.*?)</symbol>', text))
    assert set(drawn) == {view.shape_of(verdict) for verdict in Verdict}
    assert len(set(drawn.values())) == len(drawn)


def test_a_map_is_drawn_cell_by_cell_and_its_edge_is_exact():
    cells = ["0099", "0094"]
    found = ErrorMap(
        output="y", shape=[2, 1024], wrong=900, first=[0, 512], box=[0, 1, 512, 1023], cells=cells
    )
    plot = plots.map_plot(found)
    assert plot.strokes == {2: [(3, 1, 1)], 4: [(2, 0, 2), (2, 1, 1)]}
    drawn = {path["class"]: path["d"] for path in Page(plot.draw().__html__()).all("path")}
    assert drawn == {"s2": "M 3 1.5 h 1", "s4": "M 2 0.5 h 2 M 2 1.5 h 1"}
    assert plot.box == (2.0, 0.0, 2.0, 2.0)
    assert "rows 0 to 1 of 2 and columns 512 to 1023 of 1,024; 512 is 1 x 512" in plots.map_words(found)


# -- the next step


SLOWEST = "layer_norm_backward/speed/rows=8192,cols=16384,bf16"
STEPS = {
    "GPU": ("cpu.json", lambda item: item),
    "layer_norm_backward faster at rows=8192,cols=16384,bf16": (
        "h200.json",
        lambda item: failed(item, Verdict.SLOW) if item.id.endswith(SLOWEST) else item,
    ),
    "elementwise_add at n=0,fp32, which is WRONG: a cause; read hint 2 in labs/lab1_elementwise_add/README": (
        "cpu.json",
        lambda item: failed(item) if item.name == "n=0,fp32" else item,
    ),
    "course staff": (
        "h200.json",
        lambda item: failed(item, Verdict.GRADER_FAULT) if item.id.endswith(SLOWEST) else item,
    ),
    "a timing was too noisy": (
        "h200.json",
        lambda item: failed(item, Verdict.INCONCLUSIVE) if item.id.endswith(SLOWEST) else item,
    ),
    "Write TODO 1 in labs/lab1_elementwise_add/elementwise_add.py, line 9: add": (
        "h200.json",
        lambda item: failed(item, Verdict.NOT_STARTED, open_todos=(OpenTodo(number=1, line=9, text="add"),)),
    ),
    "Nothing is left to fix": (  # nor where noise takes no points
        "h200.json",
        lambda item: (
            failed(item, Verdict.INCONCLUSIVE, points=item.max_points) if item.kind == "speed" else item
        ),
    ),
}


@pytest.mark.parametrize("words", STEPS)
def test_the_next_step_is_what_helps_most(words):
    name, change = STEPS[words]
    said = next_step(with_items(record(name), change))
    assert words in said
    assert said.endswith(".")
    assert "\n" not in said


# -- safe


def hostile(value):
    """The value with every text in it replaced."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: hostile(one) for name, one in value})
    if isinstance(value, dict):
        return {HOSTILE if key == "gradient_kernel" else key: hostile(one) for key, one in value.items()}
    return tuple(hostile(one) for one in value) if isinstance(value, tuple) else value


def test_nothing_that_a_student_wrote_becomes_markup():
    frame = Frame(line=3, function="", code="").model_copy(update={"function": HOSTILE, "code": HOSTILE})
    todo = OpenTodo(number=1, line=1, text="").model_copy(update={"text": HOSTILE})

    def change(item):
        words = dict.fromkeys(("name", "where", "pattern", "cause", "reason", "printed"), HOSTILE)
        measured = {"timing": hostile(item.timing), "kernels": hostile(item.kernels)}
        found = noise().model_copy(update={"output": HOSTILE})
        first = hostile(FirstWrong(output="out", index=(), yours="", expected=""))
        lists = {"frames": (frame,), "open_todos": (todo,), "first_wrong": first}
        return failed(item, **words | lists | measured | {"error_map": found})

    results = record("h200.json")
    results = with_items(results.model_copy(update={"labs": results.labs[:2], "source": HOSTILE}), change)
    results = with_exercises(results, lambda one: one.model_copy(update={"file": HOSTILE}))
    text = render(results)
    page, usual = Page(text), Page(render(record("h200.json")))
    assert "&lt;script&gt;alert" in text
    assert "MARK" in page.words
    names = {name for _, attributes in page.tags for name in attributes}
    of_failures = {"g", "pre", "section", "dd", "h4"}
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in usual.tags} | of_failures
    assert not [name for name in names if name.startswith("on")]
    assert all(char.isprintable() or char in "\n\t" for char in text)
    assert "7 * 7" in page.words
    assert max(map(len, page.words.splitlines())) < 100_000


def test_a_line_that_nobody_would_read_to_its_end_is_cut():
    def change(item):
        return failed(item, where="x" * 10**6, first_wrong=None, printed="y" * 10**6, cause="")

    results = record("h200.json")
    text = render(with_items(results.model_copy(update={"labs": results.labs[:1]}), change))
    assert "x" * failures.MOST_LINE in text
    assert "more" in text
    assert len(text) < 400_000


def test_the_page_refers_to_nothing_outside_itself(wrong_run):
    runs = [render(record(name)) for name in RECORDS]
    runs.append(render(reading.read(wrong_run[0] / "results.json")))
    for text in runs:
        page = Page(text)
        forbidden = {"script", "link", "img", "image", "iframe", "object", "embed", "base", "form", "video"}
        assert not forbidden & {tag for tag, _ in page.tags}
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        for _, attributes in page.tags:
            assert not {"src", "srcset", "xlink:href", "action"} & set(attributes)
            assert "url(" not in attributes.get("style", "")
            if "href" in attributes:
                assert attributes["href"].removeprefix("#") in ids
        assert "url(" not in text
        assert "@import" not in text
        assert not re.search(r"https?://", text)
        (policy,) = [
            m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
        ]
        assert {"default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"} <= set(policy.split("; "))


def test_a_run_in_which_everything_is_wrong_everywhere_stays_small():
    def change(item):
        if item.kind == CODEGEN:
            return item
        where = f"{item.id}: " + "w" * 300
        more = {"first_wrong": None, "printed": "p" * 300, "error_map": noise()}
        return failed(item, cause="", where=where, **more)

    text = render(with_items(record("h200.json"), change))
    assert len(text.encode()) < MOST_BYTES
    assert text.count(failures.LEFT_OUT) > 0
    assert text.count('aria-label="Error map') >= 50


# -- for everybody


@pytest.mark.parametrize("name", RECORDS)
def test_who_listens_to_the_page_gets_every_picture_in_words(name):
    page = Page(render(record(name)))
    pictures = [svg for svg in page.all("svg") if svg.get("aria-hidden") != "true"]
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in pictures)
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("caption")) == len(page.all("table")) > 0
    assert all(cell.get("scope") in ("row", "col") for cell in page.all("th"))
    for level in page.all("div"):
        assert "tabindex" not in level or level.get("aria-label"), "what takes the focus has a name"


def test_both_themes_and_paper_are_thought_of():
    text = render(record("cpu.json"))
    style = text[text.index("<style>") : text.index("</style>")]
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    names = [set(re.findall(r"--(\w+):", theme)) for theme in (light, dark)]
    assert names[0] == names[1]
    for theme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for name in ("ink", "soft", "pass", "fail", "slow", "todo", "open", "fault"):
            for ground in ("page", "panel"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


# -- the command


def test_grade_ends_with_the_command_for_the_page_and_it_works(wrong_run, tmp_path):
    folder, printed = wrong_run
    (command,) = (line.partition(": ")[2] for line in printed.splitlines() if line.startswith("for a page"))
    assert command == f"make report RESULTS={folder}"
    assert cli_report.how_to_see(cli_report.RESULTS) == "make report"
    texts = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.html"
        given = ("--variable", command.split()[2])
        done = python("-m", "grader", *given, "report", "--out", out, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"wrote {out}\n"
        texts.append(out.read_bytes())
    assert texts[0] == texts[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.html", "2.html"]


def test_the_page_of_a_record_elsewhere_does_not_land_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["report", "--results", str(ROOT / "solutions/results/cpu.json")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "results" / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_it_is_opened_where_that_was_asked_for(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) > 1)
    arguments = [
        "report",
        "--results",
        str(ROOT / "solutions/results/cpu.json"),
        "--out",
        str(tmp_path / "r.html"),
    ]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert opened == []
    assert "open the file yourself" in CliRunner().invoke(main, [*arguments, "--open"]).output
    assert opened == [(tmp_path / "r.html").as_uri()]
    assert "open the file yourself" not in CliRunner().invoke(main, [*arguments, "--open"]).output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "run `make grade` first"),
        ("[", "not a results file of this grader"),
        ("{}", "not a results file of this grader"),
        (
            f'{{"schema_version": {SCHEMA_VERSION + 1}, "more": 1}}',
            "use the version of the grader that wrote it",
        ),
    ],
)
def test_without_results_it_says_what_to_do_and_writes_nothing(tmp_path, text, words):
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    before = sorted(tmp_path.iterdir())
    done = CliRunner().invoke(main, ["report", "--results", str(tmp_path)])
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_page_needs_neither_torch_nor_triton_nor_matplotlib(tmp_path):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton', 'matplotlib', 'numpy')))\n"
        "from grader.cli.main import main\n"
        f"main(['report', '--results', 'solutions/results/h200.json', '--out', {str(tmp_path / 'p.html')!r}])"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.html").is_file()


def test_help_loads_nothing_of_the_page():
    done = python("-X", "importtime", "-m", "grader", "-h")
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "grader.cli.report" in loaded
    assert not [
        name for name in loaded if name.split(".")[0] in ("jinja2", "torch") or "grader.report.page" in name
    ]
