"""A capstone with everything in it that is handed in beside kernels, made of synthetic records."""

import hashlib
from pathlib import Path

from grader.measure.bench import hand_in
from grader.measure.bench.record import OpRecord
from grader.measure.survey.command import redraw
from grader.tests.helpers.course import ROOT
from grader.tests.measure.kernel_log_fakes import TILED, Bench, learn, step
from grader.tests.measure.survey_fakes import bench_of, survey_of


def complete_capstone(tree: Path) -> Path:
    """A capstone with everything in it: survey, benchmarks of six kernels, five steps of one."""
    capstone = tree / "gpu-programming"
    for file in ("vector_add/02_vectorised.cu", "reduction/05_deterministic.cu", TILED.partition("/")[2]):
        (capstone / "cuda-kernels" / file).parent.mkdir(parents=True)
        (capstone / "cuda-kernels" / file).write_text("tiled\n")
    for name in ("swiglu", "add_rms_norm", "attention"):
        (capstone / "triton-kernels").mkdir(exist_ok=True)
        (capstone / "triton-kernels" / f"{name}.py").write_text(f"# {name}\n")
    hand_in.write(benchmarks(capstone), capstone)

    folder = capstone / "hardware-survey"
    folder.mkdir()
    survey_of().save(folder / "survey.json")
    readme = (ROOT / "gpu-programming" / "hardware-survey" / "README.md").read_text("utf-8")
    (folder / "README.md").write_text(readme.replace("_your words_", "Mine."), "utf-8")
    redraw(folder)

    bench = Bench(capstone)
    for number in range(1, 6):
        (capstone / TILED).write_text("tiled\n" + "again\n" * (5 - number))
        step(capstone, bench, TILED, f"step {number}: one line less, no difference")
        learn(capstone, number)
    return tree


def benchmarks(capstone):
    """A record of each file that lies there, by the names of the bench."""
    names = {"vector_add": "vector_add", "reduction": "reduce_sum", "matmul": "cuda_matmul"}
    (synthetic,) = bench_of().ops
    synthetic.sizes[0].arms["ours"].rate = 0.5
    ops = []
    for path in sorted([*capstone.glob("cuda-kernels/*/*.cu"), *capstone.glob("triton-kernels/*.py")]):
        facts = {
            "name": names.get(path.parent.name, path.stem),
            "file": str(path.relative_to(capstone.parent)),
            "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        ops.append(OpRecord(**synthetic.model_dump() | facts))
    return bench_of().model_copy(update={"ops": ops})
