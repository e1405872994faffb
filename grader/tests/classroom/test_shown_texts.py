"""Which strings of modules are texts: an edit of one leaves the hashes alone, any other edit does not."""

import ast

import pytest

from grader.classroom.grading import code_hash, fingerprint, looked_for, shown_texts
from grader.tests.classroom import fingerprint_edits

OUTCOME = """
class Outcome:
    verdict: str
    where: str = ""

def shown(outcome):
    return Result(where=outcome.where)
"""
OLD, NEW = "the result is quite wrong", "the result is not right at all"


def hashes(*modules):
    trees = shown_texts.without_texts({f"grader.m{k}": text for k, text in enumerate((OUTCOME, *modules))})
    return [code_hash.of_tree(tree) for tree in trees.values()]


def regrades(old, new, *others):
    assert old != new
    return hashes(old, *others) != hashes(new, *others)


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    return Outcome('WRONG', where='{}')",
        "from grader.m0 import Outcome\ndef f():\n    return Outcome('WRONG', '{}')",
        "def f(n):\n    where = f'{{n}} times {}'\n    return Outcome('WRONG', where=where)",
        "def f():\n    raise ValueError('{}')",
        "WORDS = '{}'\ndef f():\n    return Outcome('WRONG', where=WORDS)",
        "WORDS = {{'a': '{}'}}\ndef f(k):\n    return Outcome('WRONG', where=WORDS.get(k, ''))",
        "def g():\n    return 1, '{}'\ndef f():\n    n, words = g()\n    return Outcome(n, where=words)",
        "def g():\n    yield 1, '{}'\ndef f():\n    for n, words in g():\n        raise ValueError(words)",
        "def f(x):\n    return Outcome('WRONG', where='; '.join([str(x), '{}']))",
    ],
)
def test_a_sentence_that_is_only_shown_is_a_text(code):
    assert not regrades(code.format(OLD), code.format(NEW))


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return x == '{}'",
        "def f(x):\n    return x['{}']",
        "def f(x):\n    return {{'{}': 1}}[x]",
        "def f(x):\n    return re.match('{}', x)",
        "NAMES = words('{}')\ndef words(text):\n    return text.split()",
        "def f():\n    return Case(name='{}')",
        "def f():\n    where = '{}'\n    seed(where)\n    return Outcome('WRONG', where=where)",
        "def g():\n    return '{}'\ndef f(x):\n    return x == g()",
        "def g():\n    return '{}'\ndef f(x):\n    return x(g)",  # whoever gets g may call it
        "def g():\n    return 'later rows', '{}'\ndef f(x):\n    words, name = g()\n    return name in x",
        "def f(p):\n    subprocess.run(['{}'], cwd=p)",
        "def f():\n    send({{'where': '{}'}})",
        "class Kind(Enum):\n    WRONG = '{}'",
        "def f(n):\n    raise ValueError(f'{{n:{}}}')",
        "class OwnError(Exception):\n    def __init__(self, why):\n        self.kind = why\n"
        "def f():\n    raise OwnError('{}')",
    ],
)
def test_a_sentence_that_may_be_used_is_code(code):
    assert regrades(code.format(OLD), code.format(NEW))


@pytest.mark.parametrize(
    "reader",
    [
        "def f(outcome):\n    return outcome.where.split()[0]",
        "def f(outcome, known):\n    return outcome.where in known",
        "def f(outcome, known):\n    return known[outcome.where]",
        "def f(outcome, word):\n    return word in outcome.where",
        "def f(outcome):\n    return 'quite wrong' in outcome.where",
        "def f(outcome):\n    return outcome.where.startswith('the result is qu')",
        "SEEN = {'quite wrong': 1}\ndef f(outcome):\n    return [k for k in SEEN if k in outcome.where]",
        "def f(outcome):\n    return outcome.where == 'the result is quite wrong'",
        "from grader.m1 import why as reason\ndef f(x):\n    return x == reason()",
        "import grader.m1\ndef f(x):\n    return x == grader.m1.why()",
    ],
)
def test_what_another_module_does_with_a_text_makes_it_code(reader):
    code = f"def why():\n    return '{OLD}'\ndef f():\n    return Outcome('WRONG', where=why())"
    assert not regrades(code, code.replace(OLD, NEW))
    assert regrades(code, code.replace(OLD, NEW), reader)


@pytest.mark.parametrize("looked", ["'argument' in text", "re.search('[a-z] argument', text)"])
def test_a_word_that_is_looked_for_in_errors_counts_where_it_goes_and_where_it_comes(looked):
    reader = f"def f(text):\n    return {looked}"
    code = "def f():\n    raise ValueError('this is no valid argument here')"
    other = code.replace("argument", "value")
    assert not regrades(code, other)
    assert regrades(code, other, reader)
    assert regrades(other, code, reader)


def test_the_values_in_a_text_are_code():
    code = "def f(n):\n    raise ValueError(f'there are {n} of these too many')"
    assert regrades(code, code.replace("{n}", "{n + 1}"))
    assert regrades(code, code.replace("{n}", "{n:.1f}"))
    assert not regrades(code, code.replace("too many", "that may not be"))


def test_a_short_string_counts_everywhere():
    code = "def f():\n    raise ValueError('bad name')"
    assert regrades(code, code.replace("bad", "wrong"))


def test_the_words_that_the_judge_looks_for_in_errors_are_known():
    trees = ast.parse(fingerprint_edits.source("grader/judge/diagnosis.py"))
    found = looked_for.everywhere([trees])
    assert {"out of resource", "without a gradient function", "ZeroDivisionError"} <= found.within


def test_more_than_a_hundred_messages_of_the_grader_are_texts():
    modules = {name: path.read_text("utf-8") for name, path in fingerprint.covered().items()}
    trees = {name: ast.parse(text) for name, text in modules.items()}
    assert len(shown_texts.texts(trees)) > 150


@pytest.mark.slow
@pytest.mark.parametrize("layer", range(len(fingerprint_edits.layers())))
def test_edits_that_others_have_written_regrade_only_if_they_must(layer):
    edits = fingerprint_edits.layers()[layer]
    modules = {name: path.read_text("utf-8") for name, path in fingerprint.covered().items()}
    names = {
        path.relative_to(fingerprint.catalog.ROOT).as_posix(): name
        for name, path in fingerprint.covered().items()
    }
    was, now = dict(modules), dict(modules)
    for one in edits:
        name, text = names.get(one.file, one.file), fingerprint_edits.source(one.file)
        was[name], now[name] = one.before(text), one.after(text)
    old, new = hashed(was, modules), hashed(now, modules)
    for one in edits:
        name = names.get(one.file, one.file)
        assert (old[name] != new[name]) is bool(one.regrades), (one.file, one.name, one.why)


def hashed(texts, covered):
    """As fingerprint does: what only a lab.py imports is hashed on its own, with all of its strings."""
    inside = fingerprint.modules({name: text for name, text in texts.items() if name in covered})
    return inside | {name: code_hash.code(text) for name, text in texts.items() if name not in covered}
