"""Files made from the results: results.json itself, a Markdown summary, and facts for the JUnit file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from grader.files import replace
from grader.report import KINDS, details_of, word
from grader.results import Results
from grader.spec import Verdict, lab_word


def markdown(results: Results) -> str:
    """A summary for a CI step: one table row an exercise and kind, failures below."""
    machine = results.machine
    name = machine.gpu["name"] if machine.gpu else "no GPU"
    lines = [
        f"## {results.points:.1f} of {results.graded_points:.1f} points",
        "",
        f"{results.not_graded_points:.1f} points not graded · {name} · torch {machine.torch} · "
        f"triton {machine.triton} · tier {results.tier} · seed {results.seed} · {results.date}",
        "",
        f"grader {results.grader} · assurance {results.assurance}" + _why_no_gpu(results),
        "",
        "| lab | exercise | | verdicts | points |",
        "|---|---|---|---|---:|",
    ]
    failures = []
    for lab in results.labs:
        for exercise in lab.exercises:
            for kind in KINDS:
                items = [item for item in exercise.items if item.kind == kind]
                if not items:
                    continue
                words = [word(item) for item in items]
                verdicts = ", ".join(f"{words.count(one)} {one}" for one in dict.fromkeys(words))
                points, most = sum(i.points for i in items), sum(i.max_points for i in items)
                called = lab_word(lab.folder, lab.number).removeprefix("lab ")
                lines.append(
                    f"| {called} | {exercise.name} | {kind} | {verdicts} | {points:.1f} / {most:.1f} |"
                )
                bad = [
                    i
                    for i in items
                    if i.verdict not in (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED)
                ]
                for item in bad:
                    failures += [
                        f"{word(item)}  {item.id}",
                        *details_of(item, lab.folder, exercise.file),
                        "",
                    ]
    lines += ["", "### Files", ""]
    lines += [
        f"* `{lab.folder}/{exercise.file}` sha256 {exercise.file_sha256 or 'missing'}"
        for lab in results.labs
        for exercise in {e.file: e for e in lab.exercises}.values()
    ]
    if failures:
        # Indented text is code in Markdown: nothing a student printed can become markup.
        lines += ["", "### What failed", "", *("    " + line for line in failures)]
    return "\n".join(lines) + "\n"


def sign_junit(results: Results, path: Path) -> None:
    """Add to pytest's JUnit file, as properties of its suite, what a second run needs to agree or differ."""
    tree = ElementTree.parse(path)
    suite = tree.getroot().find("testsuite")
    properties = ElementTree.Element("properties")
    machine = results.machine
    facts = {
        "grader": results.grader,
        "assurance": results.assurance,
        "date": results.date,
        "command": results.command,
        "tier": results.tier,
        "seed": results.seed,
        "gpu": machine.gpu["name"] if machine.gpu else f"none: {machine.gpu_missing}",
        "driver": machine.gpu["driver"] if machine.gpu else "",
        "torch": machine.torch,
        "triton": machine.triton,
        "points": f"{results.points:.1f} of {results.graded_points:.1f}",
        "points not graded": f"{results.not_graded_points:.1f}",
    }
    for lab in results.labs:
        for exercise in lab.exercises:
            facts[f"sha256 {lab.folder}/{exercise.file}"] = exercise.file_sha256 or "missing"
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    suite.insert(0, properties)
    part = path.with_name(f".{path.name}.part")
    tree.write(part, encoding="utf-8", xml_declaration=True)
    part.replace(path)


def _why_no_gpu(results: Results) -> str:
    return f" · no GPU: {results.machine.gpu_missing}" if results.machine.gpu_missing else ""


def write(results: Results, folder: Path) -> None:
    """results.json and summary.md, each complete or not there at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("results.json", results.model_dump_json(indent=1)),
        ("summary.md", markdown(results)),
    ):
        replace(folder / name, text)
