"""Skeletons: what students get from a solution, and what the grader reads back from their files."""

import ast
import re
import subprocess
import warnings
from collections import Counter
from textwrap import dedent

import pytest

from grader.course.skeleton import COPIES, UncommittedWork, only_adds_lines, outdated, render, write_skeletons
from grader.course.todos import Todo, open_todos, open_todos_of
from grader.tests.helpers.course import ROOT

EVERY = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.glob("solutions/lab*/[!_]*.py"))}
SOLUTIONS = {name: path for name, path in EVERY.items() if "# GIVEN:" not in path.read_text("utf-8")}
PLACEHOLDER = re.compile(
    r'(tl.static_assert\(False, "|raise NotImplementedError\("|\w+ = None  # )TODO \d+: .+'
)

SOLUTION = dedent('''\
    """Twice a vector."""

    import triton
    import triton.language as tl

    # BEGIN TODO 1: the widths to try (about 2 lines)
    # Powers of two.
    WIDTHS = [width for width in (128, 256)]
    LIMIT, STEP = 1024, 2
    # END TODO 1


    @triton.autotune(configs=WIDTHS, key=["n"])
    @triton.jit
    def twice_kernel(x_ptr, n, BLOCK: tl.constexpr):
        for start in range(0, n, BLOCK):
            # BEGIN TODO 2: double "one" block, it's short (about 2 lines)
            # Lanes past the end
            # are not ours.
            offs = start + tl.arange(0, BLOCK)
            # Secret.
            tl.store(x_ptr + offs, 2 * tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)
            # END TODO 2


    def twice(x):
        """2 * x."""
        # BEGIN TODO 3: launch (about 1 line)

        # Secret, after a blank line.
        twice_kernel[(1,)](x, x.numel(), BLOCK=128)
        # END TODO 3
        return x
    ''')

SKELETON = dedent('''\
    """Twice a vector."""

    import triton
    import triton.language as tl

    # BEGIN TODO 1: the widths to try (about 2 lines)
    # Powers of two.
    WIDTHS = None  # TODO 1: the widths to try
    LIMIT = None  # TODO 1: the widths to try
    STEP = None  # TODO 1: the widths to try
    # END TODO 1


    @triton.autotune(configs=WIDTHS, key=["n"])
    @triton.jit
    def twice_kernel(x_ptr, n, BLOCK: tl.constexpr):
        for start in range(0, n, BLOCK):
            # BEGIN TODO 2: double "one" block, it's short (about 2 lines)
            # Lanes past the end
            # are not ours.
            tl.static_assert(False, "TODO 2: double \\"one\\" block, it's short")
            # END TODO 2


    def twice(x):
        """2 * x."""
        # BEGIN TODO 3: launch (about 1 line)
        raise NotImplementedError("TODO 3: launch")
        # END TODO 3
        return x
    ''')

CHAIN = dedent('''\
    def f_kernel():
        tl.static_assert(False, "TODO 1: a")

    def f(x):
        f_kernel[(1,)](x)
        g = f_kernel

    class Op(Function):
        def forward(ctx, x):
            return f(x)

        @staticmethod
        def backward(ctx, dy):
            raise NotImplementedError("TODO 2: b")

    def g(x):
        return Op.apply(x)

    def h(x):
        """Nothing of the above."""
    ''')

OPEN_G = 'def g():\n    raise NotImplementedError("TODO 1: a")\n\n'


def without_marks(source):
    return "\n".join(line for line in source.split("\n") if not re.search("# (BEGIN|END) TODO", line))


def numbers(todos):
    return [todo.number for todo in todos]


def region(*lines):
    return "\n".join(["def f():", *(f"    {line}" for line in lines), "    return 1", ""])


def test_each_region_becomes_its_leading_comments_and_a_placeholder_of_its_kind():
    assert render(SOLUTION) == SKELETON


@pytest.mark.parametrize(
    "decorator", ["triton.jit", "triton.jit(noinline=True)", "gluon.jit", "jit", "wrap(f)\n@triton.jit"]
)
def test_placeholder_under_a_jit_decorator_is_a_static_assert(decorator):
    source = f"@{decorator}\n" + region("# BEGIN TODO 1: a (about 1 line)", "x = 1", "# END TODO 1")
    assert '    tl.static_assert(False, "TODO 1: a")\n' in render(source)


@pytest.mark.parametrize("decorator", ["functools.cache", "wrap(triton.jit)", "torch.jit.script", "jitter"])
def test_placeholder_under_another_decorator_is_a_raise(decorator):
    source = f"@{decorator}\n" + region("# BEGIN TODO 1: a (about 1 line)", "x = 1", "# END TODO 1")
    assert '    raise NotImplementedError("TODO 1: a")\n' in render(source)


def test_placeholder_in_a_method_is_a_raise():
    method = region("# BEGIN TODO 1: a (about 1 line)", "x = 1", "# END TODO 1").replace("\n", "\n    ")
    assert '        raise NotImplementedError("TODO 1: a")\n' in render(f"class Op:\n    {method}")


def test_placeholder_of_a_whole_function_is_its_name_set_to_none():
    source = "# BEGIN TODO 1: a (about 2 lines)\n@cache\ndef f():\n    return g()\n# END TODO 1\n"
    assert render(source) == "# BEGIN TODO 1: a (about 2 lines)\nf = None  # TODO 1: a\n# END TODO 1\n"


BEGIN_1, END_1 = "# BEGIN TODO 1: a (about 1 line)", "# END TODO 1"
BEGIN_2 = "# BEGIN TODO 2: b (about 1 line)"
BAD_MARKS = {
    "begin without end": ([BEGIN_1, "x = 1"], "line 2: TODO 1 has no END"),
    "end without begin": (["x = 1", END_1], "line 3: expected '# BEGIN TODO 1"),
    "nested": ([BEGIN_1, BEGIN_2, "x = 1", "# END TODO 2", END_1], "line 3: expected '# END TODO 1', found"),
    "end of another number": ([BEGIN_1, "x = 1", "# END TODO 2"], "line 4: expected '# END TODO 1', found"),
    "end at another indent": ([BEGIN_1, "x = 1", "    " + END_1], "line 4: expected '# END TODO 1', found"),
    "first is not 1": ([BEGIN_2, "x = 1", "# END TODO 2"], "line 2: expected '# BEGIN TODO 1"),
    "duplicate": ([BEGIN_1, "x = 1", END_1, BEGIN_1, "y = 1", END_1], "line 5: expected '# BEGIN TODO 2"),
    "gap": (
        [BEGIN_1, "x = 1", END_1, "# BEGIN TODO 3: c (about 1 line)"],
        "line 5: expected '# BEGIN TODO 2",
    ),
    "no size": (["# BEGIN TODO 1: a", "x = 1", END_1], "line 2: .*about 3 lines"),
    "no task": (["# BEGIN TODO 1: (about 1 line)", "x = 1", END_1], "line 2: .*task"),
    "lower case": (["# begin todo 1: a (about 1 line)", "x = 1", "# end todo 1"], "line 2"),
    "no space": (["#BEGIN TODO 1: a (about 1 line)", "x = 1", "#END TODO 1"], "line 2"),
    "behind code": (["x = 1  " + BEGIN_1, "y = 1", END_1], "line 2"),
    "no code": ([BEGIN_1, "# a comment", "", END_1], "line 2: TODO 1 contains no code"),
    "no mark": (["x = 1"], "no TODO mark.*whole solution"),
}


@pytest.mark.parametrize(("lines", "message"), BAD_MARKS.values(), ids=BAD_MARKS.keys())
def test_bad_marks_are_refused_with_the_line(lines, message):
    with pytest.raises(ValueError, match=message):
        render(region(*lines))


@pytest.mark.parametrize("code", ["print(1)", "x[0] = 1", "import os", "x = 1\nx.append(2)"])
def test_region_outside_a_function_may_only_define_names(code):
    with pytest.raises(ValueError, match=r"line 2: .*TODO 1 may only define names"):
        render(f"x = []\n{BEGIN_1}\n{code}\n{END_1}\n")


def test_region_in_a_class_body_is_refused():
    with pytest.raises(ValueError, match=r"line 2: .*TODO 1"):
        render(f"class A:\n    {BEGIN_1}\n    x = 1\n    {END_1}\n")


BONUS = """
# BONUS 2: a faster one (about 2 lines)
FASTER = 1
# END BONUS 2
"""


def test_of_a_bonus_the_comment_stays_and_nothing_is_open():
    before = render(SOLUTION)
    after = render(SOLUTION + BONUS)
    assert after == before + "\n# BONUS 2: a faster one (about 2 lines)\n"
    assert only_adds_lines(after, SOLUTION + BONUS) == []
    assert len(open_todos(after)) == len(open_todos(before))


@pytest.mark.parametrize("old", ["# END BONUS 2\n", "# BONUS 2: a faster one (about 2 lines)\n"])
def test_half_a_bonus_is_refused(old):
    with pytest.raises(ValueError, match="BONUS"):
        render(SOLUTION + BONUS.replace(old, ""))


def test_a_given_file_is_handed_out_whole():
    given = "# GIVEN: nothing to complete\nWIDTH = 4\n"
    assert render(given) == given
    with pytest.raises(ValueError, match="GIVEN"):
        render(SOLUTION + given)


def test_open_todos_gives_number_text_and_line_of_each_placeholder():
    assert open_todos(SKELETON) == (
        Todo(1, "the widths to try", 8),
        Todo(2, 'double "one" block, it\'s short', 21),
        Todo(3, "launch", 28),
    )


def test_open_todos_are_found_without_the_marks():
    found = open_todos(without_marks(SKELETON))
    assert [(todo.number, todo.text) for todo in found] == [(t.number, t.text) for t in open_todos(SKELETON)]


def test_filled_region_is_no_longer_open():
    filled = SKELETON.replace('raise NotImplementedError("TODO 3: launch")', "print(x)")
    assert numbers(open_todos(filled)) == [1, 2]


def test_region_of_several_names_stays_open_until_the_last_is_filled():
    once = SKELETON.replace("WIDTHS = None", "WIDTHS = [1]")
    twice = once.replace("LIMIT = None", "LIMIT = 1")
    assert open_todos(once)[0] == Todo(1, "the widths to try", 9)
    assert open_todos(twice)[0] == Todo(1, "the widths to try", 10)
    assert numbers(open_todos(twice.replace("STEP = None", "STEP = 1"))) == [2, 3]


@pytest.mark.parametrize(
    "source",
    [
        "CONFIGS = [1]  # TODO 1: the configs",
        "CONFIGS = None  # set later",
        "def f():\n    x = None  # TODO 1: tune this",
        "# raise NotImplementedError('TODO 1: a')",
        "TEXT = \"raise NotImplementedError('TODO 1: a')\"",
        "tl.static_assert(BLOCK > 0, 'TODO 1: a')",
        "tl.static_assert(False, 'unsupported')",
        "raise NotImplementedError('bf16')",
        "raise NotImplementedError",
    ],
)
def test_line_that_resembles_a_placeholder_is_not_open(source):
    assert open_todos(source) == ()


@pytest.mark.parametrize(
    "source", [SKELETON + "def (", SKELETON + "\0", "(" * 10_000, "-" * 200_000 + "1"], ids=[*"abcd"]
)
def test_file_that_does_not_parse_has_no_open_todos(source):
    assert open_todos(source) == ()
    assert open_todos_of(source, "twice") == ()


def test_invalid_escape_in_a_string_hides_no_todo_and_warns_nobody():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert numbers(open_todos('PATTERN = "\\d"\n' + SKELETON)) == [1, 2, 3]
    assert caught == []


def test_function_reaches_its_kernel_and_the_names_in_its_decorators():
    launched = SKELETON.replace('raise NotImplementedError("TODO 3: launch")', "twice_kernel[(1,)](x, 1)")
    assert numbers(open_todos_of(launched, "twice")) == [1, 2]


def test_function_that_does_not_launch_yet_reaches_its_own_todo_alone():
    assert numbers(open_todos_of(SKELETON, "twice")) == [3]


def test_function_reaches_nothing_that_only_uses_it():
    assert numbers(open_todos_of(CHAIN, "f")) == [1]


def test_function_reaches_the_methods_of_a_class_it_uses():
    assert numbers(open_todos_of(CHAIN, "g")) == [1, 2]


def test_reach_follows_module_level_names_to_what_they_are_made_of():
    source = OPEN_G + "ALL = [g]\nALL += [2]\n\ndef f(x):\n    return ALL\n"
    assert numbers(open_todos_of(source, "f")) == [1]


def test_recursion_does_not_keep_the_search_going():
    source = 'def f():\n    g()\n\ndef g():\n    f()\n    raise NotImplementedError("TODO 1: a")\n'
    assert numbers(open_todos_of(source, "f")) == [1]


def test_argument_and_local_hide_a_module_level_name():
    source = OPEN_G + "def f(g):\n    return g\n\ndef h():\n    g = 1\n    return g\n"
    assert open_todos_of(source, "f") == open_todos_of(source, "h") == ()


def test_unknown_function_reaches_nothing():
    assert open_todos_of(SKELETON, "thrice") == ()


@pytest.mark.parametrize("body", ["pass", "...", '"""Later."""', '"""Later."""\n    pass'])
def test_function_with_an_empty_body_is_open(body):
    assert open_todos_of(f"import os\n\n\ndef f():\n    {body}\n", "f") == (Todo(0, "f has no body yet", 4),)


@pytest.mark.parametrize("body", ["return 1", "x = 1", "return", "global g\n    g = 1"])
def test_function_with_a_short_body_is_not_open(body):
    assert open_todos_of(f"def f(x):\n    {body}\n", "f") == ()


def test_empty_body_of_another_function_does_not_count():
    assert open_todos_of("def g():\n    pass\n\ndef f(x):\n    return g()\n", "f") == ()


def test_line_missing_from_the_solution_is_reported_alone():
    assert only_adds_lines(SKELETON.replace("return x", "return y"), SOLUTION) == ["    return y"]


def test_line_out_of_order_is_reported():
    assert only_adds_lines("b\na\n", "a\nb\n") == ["a"]


def test_placeholder_of_any_kind_is_not_reported():
    assert only_adds_lines(SKELETON, SOLUTION) == []


def git(root, *words):
    author = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path):
    lab = tmp_path / "solutions/lab9_twice"
    for folder in (lab / "wrong", lab / "variants", tmp_path / "solutions/notes"):
        folder.mkdir(parents=True)
        (folder / "other.py").write_text("not even Python\n")
    (lab / "twice.py").write_text(SOLUTION)
    return tmp_path


@pytest.fixture
def checkout(root):
    git(root, "init", "-q")
    write_skeletons(root)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    (root / "solutions/lab9_twice/twice.py").write_text(SOLUTION.replace("launch", "start the kernel"))
    return root


TARGET = "labs/lab9_twice/twice.py"


def test_only_files_directly_in_a_lab_folder_are_written(root):
    assert write_skeletons(root) == [root / TARGET]
    assert (root / TARGET).read_text() == SKELETON
    assert [path for path in (root / "labs").rglob("*") if path.is_file()] == [root / TARGET]


def test_committed_skeleton_is_overwritten(checkout):
    assert write_skeletons(checkout) == [checkout / TARGET]
    assert "TODO 3: start the kernel" in (checkout / TARGET).read_text()


def test_an_outdated_skeleton_and_its_copy_are_named_and_left_as_they_are(checkout):
    before = (checkout / TARGET).read_bytes()
    assert outdated(checkout) == [checkout / COPIES / TARGET, checkout / TARGET]
    assert (checkout / TARGET).read_bytes() == before
    write_skeletons(checkout)
    assert outdated(checkout) == []
    (checkout / COPIES / TARGET).unlink()
    assert outdated(checkout) == [checkout / COPIES / TARGET]


def test_deleted_skeleton_is_written_again(checkout):
    (checkout / TARGET).unlink()
    write_skeletons(checkout)
    assert (checkout / TARGET).exists()


def test_unrelated_uncommitted_file_is_no_obstacle(checkout):
    (checkout / "labs/lab9_twice/README.md").write_text("draft\n")
    assert write_skeletons(checkout) == [checkout / TARGET]


@pytest.mark.parametrize("state", ["modified", "staged", "untracked", "ignored", "no checkout"])
def test_uncommitted_work_is_refused_and_nothing_is_written(checkout, state):
    (checkout / "solutions/lab1_first").mkdir()
    (checkout / "solutions/lab1_first/first.py").write_text(SOLUTION)
    (checkout / TARGET).write_text("work of an evening\n")
    if state == "staged":
        git(checkout, "add", ".")
    elif state in ("untracked", "ignored"):
        git(checkout, "rm", "-q", "--cached", TARGET)
        git(checkout, "commit", "-q", "-m", "forget")
        (checkout / ".gitignore").write_text("labs\n" if state == "ignored" else "")
    elif state == "no checkout":
        (checkout / ".git").rename(checkout / "git-put-away")
    with pytest.raises(UncommittedWork) as refusal:
        write_skeletons(checkout)
    assert TARGET in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "first.py" not in str(refusal.value)
    assert (checkout / TARGET).read_text() == "work of an evening\n"
    assert not (checkout / "labs/lab1_first").exists()


def test_uncommitted_file_that_already_has_the_right_bytes_is_accepted(root):
    write_skeletons(root)
    assert write_skeletons(root) == [root / TARGET]


def test_bad_solution_is_named_and_nothing_is_written(root):
    (root / "solutions/lab9_twice/zzz.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"solutions/lab9_twice/zzz.py: no TODO mark"):
        write_skeletons(root)
    assert not (root / "labs").exists()


def test_root_without_solutions_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no solutions"):
        write_skeletons(tmp_path)


def test_repository_has_solutions():
    assert SOLUTIONS


@pytest.fixture(params=SOLUTIONS.values(), ids=SOLUTIONS.keys())
def solution(request):
    return request.param.read_text("utf-8")


def test_skeleton_compiles_as_a_module(solution):
    compile(ast.parse(render(solution)), "skeleton.py", "exec")


def test_skeleton_has_exactly_the_lines_outside_regions_and_the_leading_comments(solution):
    expected, inside, leading = Counter(), False, False
    for line in solution.split("\n"):
        text = line.strip()
        leading = leading and text.startswith("#")
        if text.startswith("# END TODO"):
            inside = False
        expected[line] += not inside or leading
        if text.startswith("# END BONUS"):
            expected[line] -= 1
            inside = False
        if text.startswith("# BEGIN TODO"):
            inside = leading = True
        if text.startswith("# BONUS"):
            inside = True
    found = Counter(line for line in render(solution).split("\n") if not PLACEHOLDER.fullmatch(line.strip()))
    assert found == +expected


def test_open_todos_of_the_skeleton_are_the_marks_of_the_solution(solution):
    marks = re.findall(r"# BEGIN TODO (\d+): (.+) \(about \d+ lines?\)", solution)
    assert [(str(todo.number), todo.text) for todo in open_todos(render(solution))] == marks


def test_solution_has_no_open_todos(solution):
    assert open_todos(solution) == ()


def test_solving_only_adds_lines(solution):
    assert only_adds_lines(render(solution), solution) == []


def test_rendering_again_gives_the_same_bytes(solution):
    assert render(solution).encode() == render(solution).encode()


def test_placeholder_fits_the_line_length(solution):
    placeholders = [line for line in render(solution).split("\n") if PLACEHOLDER.fullmatch(line.strip())]
    assert placeholders
    assert [line for line in placeholders if len(line) > 110] == []


def with_one_open(solution, number):
    """The solution as a student leaves it who skips one region."""
    region = re.compile(rf"# BEGIN TODO {number}:.*# END TODO {number}$", re.DOTALL | re.MULTILINE)
    placeholder = region.search(render(solution))[0]
    return region.sub(lambda _: placeholder, solution)


@pytest.mark.parametrize(
    ("file", "function", "reached"),
    [
        ("lab1_elementwise_add/elementwise_add.py", "elementwise_add", [1, 2, 3]),
        ("lab2_online_softmax/online_softmax.py", "softmax_forward", [1, 2, 4]),
        ("lab2_online_softmax/online_softmax.py", "softmax_backward", [3, 5]),
        ("lab2_online_softmax/online_softmax.py", "softmax", [1, 2, 3, 4, 5, 6, 7]),
        ("lab3_autotuned_matmul/autotuned_matmul.py", "matmul", [1, 2, 3, 4, 5, 6, 7]),
        ("lab3_autotuned_matmul/autotuned_matmul.py", "fitting", []),
    ],
    ids=["lab1", "softmax_forward", "softmax_backward", "softmax", "matmul", "fitting"],
)
def test_one_region_left_open_holds_up_the_functions_that_reach_it(file, function, reached):
    solution = SOLUTIONS[f"solutions/{file}"].read_text("utf-8")
    every = numbers(open_todos(render(solution)))
    open_alone = {
        number: numbers(open_todos_of(with_one_open(solution, number), function)) for number in every
    }
    assert open_alone == {number: [number] if number in reached else [] for number in every}
