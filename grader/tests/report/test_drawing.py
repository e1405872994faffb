"""Pictures in pages: what a student wrote stays text, and the same shapes give the same bytes."""

from xml.etree import ElementTree

import pytest

from grader.report.page.drawing import Drawing

HOSTILE = "<script>alert(1)</script>\"'&amp;\x00\x1b\u202e]]><!--"


def test_text_of_a_student_becomes_no_markup_wherever_it_stands():
    picture = Drawing(10, 20, HOSTILE)
    picture.text(1, 2, HOSTILE, "quiet", anchor="end")
    picture.circle(1, 2, 3, "dot", HOSTILE)
    root = ElementTree.fromstring(picture.__html__())
    shown = HOSTILE.replace("\x00", "").replace("\x1b", "").replace("\u202e", "")
    assert [one.tag for one in root.iter()] == ["svg", "text", "circle", "title"]
    assert (root.get("aria-label"), root[0].text, root[1][0].text) == (shown, shown, shown)
    assert set(root.keys()) == {"class", "viewBox", "role", "aria-label"}


@pytest.mark.parametrize(("value", "written"), [(33.0, "33"), (1 / 3, "0.333333"), (0, "0"), (-2.50, "-2.5")])
def test_a_number_has_as_many_digits_as_it_needs(value, written):
    picture = Drawing(10, 10, "a dot")
    picture.circle(value, value, 1, "dot")
    (dot,) = ElementTree.fromstring(picture.__html__())
    assert (dot.get("cx"), dot.get("cy"), dot.get("r")) == (written, written, "1")


def test_the_same_shapes_give_the_same_bytes():
    def drawn():
        picture = Drawing(10, 10, "a roof")
        picture.polyline([(0, 0), (5, 5.25), (10, 5.25)], "roof")
        picture.rect(1, 1, 2, 2, "f-load s-ink", radius=3)
        picture.line(0, 0, 1, 1, "axis")
        return picture.__html__()

    assert drawn() == drawn()
    assert '<polyline class="roof" points="0 0 5 5.25 10 5.25"/>' in drawn()
    assert '<rect class="f-load s-ink" x="1" y="1" width="2" height="2" rx="3"/>' in drawn()
