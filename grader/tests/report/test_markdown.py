"""Tables and marked regions of Markdown: the bytes of the former, what is wrong with the latter."""

import pytest

from grader.report import markdown

ANY, STEP = r"\w+(?: \S+)?", r"STEP \d{1,4}"
BEGIN, END = "<!-- BEGIN cost a.json -->", "<!-- END -->"


def test_a_table_is_not_padded_and_its_last_alignment_is_for_all_that_follow():
    assert markdown.table(("size", "a", "b"), [("n=1", 2, 3.5), ("n=10", "", "-")], "lr") == (
        "| size | a | b |\n|---|---:|---:|\n| n=1 | 2 | 3.5 |\n| n=10 |  | - |"
    )
    assert markdown.table(("", "x"), [], "rl") == "| | x |\n|---:|---|"


def test_paragraphs_are_apart_and_the_last_line_ends():
    assert markdown.page(["one", "two"]) == "one\n\ntwo\n"


def test_a_region_is_rendered_again_and_the_rest_stays_byte_for_byte():
    before, after = "words\r\n\t", "\nno newline at the end"
    text = f"words\n{BEGIN}\nold\nlines\n{END}\r\n{before}\n{markdown.marked('empty', '')}{after}"
    found, problems = markdown.regions(text, ANY)
    assert ([one.label for one in found], problems) == (["cost a.json", "empty"], [])
    assert [text[one.inside] for one in found] == ["old\nlines\n", ""]
    assert [one.line for one in found] == [2, 8]
    new = markdown.rewrite(text, found, lambda one: f"{one.label} \\1\n")
    assert new == text.replace("old\nlines\n", "cost a.json \\1\n").replace(
        "<!-- BEGIN empty -->\n", "<!-- BEGIN empty -->\nempty \\1\n"
    )


def test_a_label_that_is_not_asked_for_is_prose():
    text = f"{BEGIN}\nmine\n<!-- END cost a.json -->\n<!-- BEGIN STEP 3 -->\nx\n<!-- END STEP 3 -->"
    found, problems = markdown.regions(text, STEP, named_ends=True)
    assert ([one.label for one in found], problems) == (["STEP 3"], [])
    assert text[found[0].whole].startswith("<!-- BEGIN STEP 3 -->\nx")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{BEGIN}\n", "line 1: BEGIN cost a.json without its END"),
        (f"\n{END}\n", "line 2: END without its BEGIN"),
        (f"{BEGIN}\n\n{BEGIN}\n{END}", "line 3: BEGIN cost a.json before the end of cost a.json"),
    ],
)
def test_marks_that_do_not_fit_together_are_named_with_their_line(text, said):
    assert markdown.regions(text, ANY)[1] == [said]


def test_an_end_of_another_region_ends_none():
    text = "<!-- BEGIN STEP 1 -->\n<!-- END STEP 2 -->\n<!-- END -->\n"
    assert markdown.regions(text, STEP, named_ends=True) == ([], ["line 2: END STEP 2 without its BEGIN"])


def test_marks_without_end_are_not_all_counted():
    found, problems = markdown.regions(f"{BEGIN}\n{END}\n" * markdown.MOST_MARKS, ANY)
    assert len(found) == markdown.MOST_MARKS // 2
    assert problems == [f"line {markdown.MOST_MARKS + 1}: more than {markdown.MOST_MARKS} marks"]
