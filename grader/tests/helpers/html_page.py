"""A page that was written, read back tag by tag."""

from html.parser import HTMLParser

VOID = {"meta", "br", "input"}
LEAVES = {"path", "rect", "circle", "line", "polyline", "use", "stop"}


class Page(HTMLParser):
    """Tags with their attributes, in order; a tag that is closed by another is an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self._open = [], "", []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in LEAVES
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        self.words += text

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]
