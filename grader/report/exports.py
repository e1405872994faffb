"""Write results.json and a Markdown summary, and add the run's facts to the JUnit file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from grader.course.spec import Verdict, lab_word
from grader.report.failures import Told
from grader.report.terminal import kinds_of, word
from grader.results import points
from grader.results.models import Results
from grader.system.files import replace
from grader.system.text import harmless


def markdown(results: Results) -> str:
    """Return a summary for a CI step: one table row for each exercise and kind, failures below."""
    machine = results.machine
    score = points.score_of(results.items)
    labs = points.split(score, [lab.items for lab in results.labs])
    lines = [
        f"## {score.earned} of {score.graded} points",
        "",
        f"{score.not_graded} points not graded · {machine.gpu_name} · torch {machine.torch} · "
        f"triton {machine.triton} · tier {results.tier} · seed {results.seed} · {results.date}",
        "",
        f"grader {results.grader} · assurance {results.assurance}" + _why_no_gpu(results),
        "",
        "| lab | exercise | | verdicts | points |",
        "|---|---|---|---|---:|",
    ]
    failures, told = [], Told()
    for lab, of_lab in zip(results.labs, labs, strict=True):
        scores = points.split(of_lab, [exercise.items for exercise in lab.exercises])
        for exercise, of_exercise in zip(lab.exercises, scores, strict=True):
            for kind, items, own in kinds_of(exercise, of_exercise):
                words = [word(item) for item in items]
                verdicts = ", ".join(f"{words.count(one)} {one}" for one in dict.fromkeys(words))
                called = lab_word(lab.folder, lab.number).removeprefix("lab ")
                lines.append(
                    f"| {called} | {exercise.name} | {kind} | {verdicts} | {own.earned} / {own.most} |"
                )
                bad = [
                    i
                    for i in items
                    if i.verdict not in (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED)
                ]
                if bad:
                    place = f"{exercise.name}, {kind}"
                    failures += [place, *told.lines(bad, lab.folder, exercise.file, place), ""]
    lines += ["", "### Files", ""]
    lines += [
        f"* `{lab.folder}/{exercise.file}` sha256 {exercise.file_sha256 or 'missing'}"
        for lab in results.labs
        for exercise in {e.file: e for e in lab.exercises}.values()
    ]
    if failures:
        # Indented text is code in Markdown, so nothing that a student printed becomes markup.
        lines += ["", "### What failed", "", *("    " + harmless(line) for line in failures)]
    return "\n".join(lines) + "\n"


def sign_junit(results: Results, path: Path) -> None:
    """Add to pytest's JUnit file, as suite properties, what a second run needs to compare itself.

    ValueError if the file has no test suite.
    """
    tree = ElementTree.parse(path)
    suite = tree.getroot().find("testsuite")
    properties = ElementTree.Element("properties")
    machine, score = results.machine, points.score_of(results.items)
    facts = {
        "grader": results.grader,
        "assurance": results.assurance,
        "date": results.date,
        "command": results.command,
        "tier": results.tier,
        "seed": results.seed,
        "gpu": machine.gpu.name if machine.gpu else f"none: {machine.gpu_missing}",
        "driver": machine.gpu.driver if machine.gpu else "",
        "torch": machine.torch,
        "triton": machine.triton,
        "points": f"{score.earned} of {score.graded}",
        "points not graded": str(score.not_graded),
    }
    for lab in results.labs:
        for exercise in lab.exercises:
            facts[f"sha256 {lab.folder}/{exercise.file}"] = exercise.file_sha256 or "missing"
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    if suite is None:
        raise ValueError(f"{path} is not a JUnit file written by pytest")
    suite.insert(0, properties)
    part = path.with_name(f".{path.name}.part")
    tree.write(part, encoding="utf-8", xml_declaration=True)
    part.replace(path)


def _why_no_gpu(results: Results) -> str:
    return f" · no GPU: {results.machine.gpu_missing}" if results.machine.gpu_missing else ""


def write(results: Results, folder: Path) -> None:
    """Write results.json and summary.md, each completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("results.json", results.model_dump_json(indent=1)),
        ("summary.md", markdown(results)),
    ):
        replace(folder / name, text)
