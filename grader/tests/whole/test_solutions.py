"""What is asked of the solutions themselves, beyond the grade: short, and usable under torch.compile."""

import ast
import json
import re
import textwrap

import pytest

from grader.course.lines_of_code import files_of, lines_of_code, lines_of_native_code, lines_with_helpers
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT


def test_lines_of_code_are_counted_without_comments_and_docstrings():
    text = '"""One\n\ntwo."""\n\n# three\ndef f(\n    x,\n):\n    """Doc."""\n'
    text += "    return (  # 4\n        x\n    )\n"
    assert lines_of_code(text) == 6


def test_lines_of_cuda_are_counted_without_comments_and_its_own_program():
    text = "// one\n#include <a.h>\n\n/* two\nthree */\nint f() {\n    return 1;  // four\n}\n"
    assert lines_of_native_code(text + "#ifndef NO_PROGRAM\nPROGRAM(f)\n#endif\n") == 4


def test_what_a_kernel_takes_from_beside_it_counts(tmp_path):
    (tmp_path / "a.py").write_text("import b\nimport json\nfrom c import f\n")
    (tmp_path / "b.py").write_text("import c\nX = 1\n")
    (tmp_path / "c.py").write_text("def f():\n    return 1\n")
    assert {path.name for path in files_of(tmp_path / "a.py")} == {"a.py", "b.py", "c.py"}
    assert lines_with_helpers(tmp_path / "a.py") == 7


SHORT = sorted(ROOT.glob("solutions/lab[34]_*/*.py"))  # not the variants, which may be long
GIVEN_IN = {
    lab: [path for path in sorted(lab.glob("*.py")) if "\n# GIVEN: " in path.read_text("utf-8")]
    for lab in sorted(ROOT.glob("solutions/lab[0-9]_*"))
}
TASK = re.compile(r"^ *# BEGIN TODO (\d+): .*\n((?:.*\n)*?) *# END TODO \1$", re.MULTILINE)
TASKS = [
    pytest.param(textwrap.dedent(code), id=f"{path.stem} TODO {number}")
    for path in SHORT
    if path.parent.name.startswith("lab4_")
    for number, code in TASK.findall(path.read_text("utf-8"))
]


def test_there_are_solutions_to_count():
    assert len(SHORT) >= 5
    assert any(GIVEN_IN.values())
    assert len(TASKS) >= 40


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.name)
def test_solution_is_short_enough_to_be_read(path):
    assert lines_of_code(path.read_text("utf-8")) <= 100


@pytest.mark.parametrize("lab", GIVEN_IN, ids=lambda lab: lab.name)
def test_what_a_lab_gives_is_short_as_well(lab):
    assert sum(lines_of_code(path.read_text("utf-8")) for path in GIVEN_IN[lab]) <= 60


@pytest.mark.parametrize("code", TASKS)
def test_a_task_of_lab_4_is_a_few_lines(code):
    assert 1 <= lines_of_code(code) <= 12


LIBRARY = """
import ast, inspect, math, pathlib
import torch
import solutions.lab4_production_slice as library

text = pathlib.Path(library.__file__).with_suffix(".pyi").read_text("utf-8")
typed = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
assert set(typed) == set(library.__all__), set(typed) ^ set(library.__all__)
for name, node in typed.items():
    function = getattr(library, name)
    assert function.__doc__, name
    default = {}
    for arg, value in zip(node.args.args[::-1], node.args.defaults[::-1]):
        default[arg.arg] = ast.literal_eval(value)
    for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults):
        default |= {} if value is None else {arg.arg: ast.literal_eval(value)}
    own = inspect.signature(function).parameters.values()
    assert [one.arg for one in node.args.args + node.args.kwonlyargs] == [one.name for one in own], name
    assert default == {one.name: one.default for one in own if one.default is not one.empty}, name
    assert all(one.annotation for one in node.args.args + node.args.kwonlyargs) and node.returns, name
print(len(typed))
"""


@pytest.mark.slow
def test_the_production_slice_is_a_library_whose_types_are_those_of_its_functions():
    done = python("-c", LIBRARY)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 14


TRACED = """
import importlib, json, sys
import torch

sys.path.append("solutions/lab4_production_slice")

def load(name):
    file = name if name in ("softmax", "dropout") else f"{name}_backward"
    return getattr(importlib.import_module(file), {"softmax": "fused_softmax"}.get(name, name))

def call(name, device="cpu"):
    torch.manual_seed(3)
    function = load(name)
    x, w, b, linear, c = (torch.randn(shape, device=device, requires_grad=True)
                          for shape in ((4, 64), (64,), (64,), (32, 64), (32,)))
    arguments = {"softmax": (), "layer_norm": (w, b), "rms_norm": (w,), "dropout": (),
                 "layer_norm_linear": (w, b, linear, c)}[name]
    named = {"p": 0.5, "seed": 77} if name == "dropout" else {}
    return lambda: function(2.0 * x, *arguments, **named) + 1.0, [x, *arguments]

graphs = []

class Enough(Exception):
    pass

def keep(graph, _):
    graphs.append(graph)
    raise Enough

for name in sys.argv[1:]:
    graphs.clear()
    torch._dynamo.reset()
    error, operators = "", set()
    try:
        torch.compile(call(name)[0], backend=keep, fullgraph=True)()
    except Exception as found:
        error = "" if graphs else f"{type(found).__name__}: {found}"
    for graph in graphs:
        for module in graph.modules():
            if isinstance(module, torch.fx.GraphModule):
                operators |= {str(node.target) for node in module.graph.nodes}
    print(json.dumps([name, error, sorted(operators)]))
"""
OPERATIONS = ("softmax", "layer_norm", "rms_norm", "dropout", "layer_norm_linear")


@pytest.fixture(scope="module")
def traced():
    """For each operation what kept torch.compile from a graph, and the operators of its graphs."""
    done = python("-c", TRACED, *OPERATIONS)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: (error, operators) for name, error, operators in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_torch_compile_sees_the_operators_and_breaks_no_graph(traced, name):
    error, operators = traced[name]
    assert error == ""
    operator = {"softmax": "fused_softmax"}.get(name, name)
    assert f"course.{operator}.default" in operators


def jitted(tree):
    """The functions of a file that are compiled by Triton."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [
        node for node in functions if any(ast.unparse(one) == "triton.jit" for one in node.decorator_list)
    ]


def test_what_torch_compile_copies_of_the_production_slice_stands_alone():
    # PyTorch copies a kernel with the functions and numbers that it names, but no module; and its tracer
    # fills in no default: it then takes every tensor for changed by the kernel.
    seen = 0
    for path in sorted(ROOT.glob("solutions/lab4_*/*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        imported = (one.names for one in tree.body if isinstance(one, ast.Import))
        modules = {alias.asname or alias.name for names in imported for alias in names} - {"tl"}
        for node in jitted(tree):
            kernel = node.name.endswith("_kernel")
            seen += kernel
            assert not (kernel and node.args.defaults), f"{path.name}: {node.name}"
            body = (one for statement in node.body for one in ast.walk(statement))
            names = {one.id for one in body if isinstance(one, ast.Name)}
            assert not names & modules, f"{path.name}: {node.name}"
    assert seen >= 10


# Compiles what the calls launch, for a GPU that need not be there, and looks at each kernel.
LAUNCHED = """
import sys, tempfile
import torch
from grader.codegen import offline
offline.install(90, tempfile.mkdtemp())

import triton
from torch._higher_order_ops import triton_kernel_wrap as tracer
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

def written(jitted, kernel, named):
    if hasattr(tracer, "identify_accessed_tensors"):  # PyTorch has renamed it
        return [one.name for one in tracer.identify_accessed_tensors(jitted, named, {}).read_writes.writes]
    return tracer.identify_mutated_tensors(jitted, named, {})

def with_fp64(jitted, kernel, named):
    if "fp32" not in kernel.src.signature.values():
        return []
    signature = {name: "fp64" if kind == "fp32" else kind for name, kind in kernel.src.signature.items()}
    source = ASTSource(jitted, signature, kernel.src.constants, kernel.src.attrs)
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return ["fp64"]

seen, run, look = {}, JITFunction.run, globals()[sys.argv[1]]

def launch(self, *args, **options):
    kernel = run(self, *args, **options)
    name = f"{self.fn.__module__}.{self.fn.__name__}"  # several files have a dx_kernel
    named = dict(zip(self.arg_names, args))
    named |= {key: value for key, value in options.items() if key in self.arg_names}
    seen.setdefault(name, set()).update(look(self, kernel, named))
    return kernel

JITFunction.run = launch
sys.path.append("solutions/lab4_production_slice")
import layer_norm, layer_norm_backward, layer_norm_linear, rms_norm, rms_norm_backward, softmax
x, w, linear = torch.randn(4, 16640), torch.randn(16640), torch.randn(32, 16640)
softmax.fused_softmax_forward(x)
softmax.fused_softmax_backward(x, x)
layer_norm.layer_norm_forward(x, w, w)
layer_norm_backward.layer_norm_backward(x, x, w)
rms_norm.rms_norm_forward(torch.randn(4, 40000), torch.randn(40000))
rms_norm_backward.rms_norm_backward(x, x, w)
layer_norm_linear.layer_norm_linear_forward(x, w, w, linear, linear[:, 0].contiguous())
for name, words in seen.items():
    print(name, *sorted(words))
"""


def looked_at(how):
    done = python("-c", LAUNCHED, how)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "assuming every input" not in done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.slow
def test_the_tracer_of_torch_compile_finds_what_a_kernel_writes():
    assert looked_at("written") == {
        "layer_norm.layer_norm_kernel": "y_ptr",
        "layer_norm_backward.dx_kernel": "dx_ptr mean_ptr rstd_ptr",
        "layer_norm_backward.weight_gradient_kernel": "sums_ptr",
        "layer_norm_linear.linear_kernel": "y_ptr",
        "layer_norm_linear.scale_kernel": "scaled_ptr shift_ptr total_ptr",
        "layer_norm_linear.statistics_kernel": "mean_ptr rstd_ptr",
        "rms_norm.rms_norm_kernel": "y_ptr",
        "rms_norm_backward.dx_kernel": "dx_ptr rstd_ptr",
        "rms_norm_backward.weight_gradient_kernel": "sums_ptr",
        "rows.column_sums_kernel": "out_ptr",
        "softmax.gradient_kernel": "dx_ptr",
        "softmax.softmax_kernel": "y_ptr",
    }


@pytest.mark.slow
def test_kernels_compile_with_the_fp64_scalars_that_torch_compile_passes():
    assert sorted(looked_at("with_fp64")) == [
        "layer_norm.layer_norm_kernel",
        "layer_norm_backward.dx_kernel",
        "layer_norm_linear.statistics_kernel",
        "rms_norm.rms_norm_kernel",
        "rms_norm_backward.dx_kernel",
    ]


COMPILED = (
    TRACED.split("graphs = []")[0]
    + """
name = sys.argv[1]

def both(compiled):
    function, leaves = call(name, "cuda")
    y = (torch.compile(function, fullgraph=True) if compiled else function)()
    return [y, *torch.autograd.grad(y, leaves, torch.ones_like(y))]

for one, other in zip(both(False), both(True), strict=True):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
print("same")
"""
)


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATIONS)
def test_torch_compile_runs_forward_and_backward_on_a_gpu(name):
    done = python("-c", COMPILED, name)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "same" in done.stdout
    assert "assuming every input" not in done.stderr
