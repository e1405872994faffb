"""The capstone's documents: survey, benchmarks and kernel log, and how they are checked."""

from grader.course.spec import Document, Lab

FEWEST_STEPS = 5


def measured(capstone):
    if not (capstone / "hardware-survey" / "survey.json").exists():
        raise FileNotFoundError("no survey.json yet: make survey, on a machine with a GPU")


def survey_consistent(capstone):
    from grader.measure.survey import check, record

    measured(capstone)
    return check.problems(record.read(capstone / "hardware-survey"))


def survey_shown(capstone):
    from grader.measure.survey import check, record, sources

    measured(capstone)
    folder = capstone / "hardware-survey"
    return [*check.readme_problems(folder, record.read(folder)), *sources.stale(folder)]


def benchmarks_of(name):
    def check(capstone):
        from grader.measure.bench import hand_in

        return hand_in.problems(capstone / name)

    return check


def log_unbroken(capstone):
    from grader.measure.kernel_log import check

    begun(capstone)
    return check.check(capstone)


def log_goes_on(capstone):
    from grader.measure.kernel_log import check

    begun(capstone)
    steps = {op: one.steps for op, one in check.summary(capstone).items()}
    if max(steps.values(), default=0) >= FEWEST_STEPS:
        return []
    found = ", ".join(f"{op} {count}" for op, count in steps.items())
    return [f"{FEWEST_STEPS} steps of one kernel are asked for; so far: {found or 'none'}"]


def begun(capstone):
    if not any((capstone / "kernel-log").glob("*/record.json")):
        raise FileNotFoundError('no step yet: make log STEP="what you expect", on a machine with a GPU')


LAB = Lab(
    title="the capstone's documents",
    exercises=(
        Document(
            "survey", "hardware-survey/survey.json",
            {"consistent": (8, survey_consistent), "shown as recorded": (4, survey_shown)},
        ),
        Document(
            "benchmarks", "cuda-kernels/bench.json",
            {
                "CUDA as recorded": (4, benchmarks_of("cuda-kernels")),
                "Triton as recorded": (4, benchmarks_of("triton-kernels")),
            },
        ),
        Document(
            "kernel_log", "KERNEL_LOG.md",
            {"unbroken": (14, log_unbroken), "five steps": (6, log_goes_on)},
        ),
    ),
)  # fmt: skip
