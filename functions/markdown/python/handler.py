"""Renders a text in Markdown as HTML."""

import re
from html.parser import HTMLParser

import markdown
from uncia_envelope import Parameter, enveloped

LINES = 6
SENTENCE = "A server that nobody sees is still somebody's server, and somebody pays for its time."


def section(number):
    """A section of the text."""
    items = "\n".join(f"* item {line} of section {number}" for line in range(LINES))
    return (
        f"## Section {number}\n\n{SENTENCE} It is *the {number}th*, and **no other**.\n\n"
        f"{items}\n\n"
        f"See [page {number}](https://example.org/{number}).\n\n{SENTENCE} {SENTENCE}\n\n"
        f"    code = {number}\n"
    )


class Read(HTMLParser):
    """What a page has: tags, where its links go, and its words."""

    def __init__(self):
        super().__init__()
        self.tags, self.links, self.text = {}, [], []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.text.append(data)


@enveloped({"sections": Parameter(30, 1, 2_000)})
def handler(sections):
    text = "\n".join(section(number) for number in range(sections))
    page = markdown.markdown(text)
    read = Read()
    read.feed(page)
    expected = {
        "h2": 1,
        "p": 3,
        "em": 1,
        "strong": 1,
        "ul": 1,
        "li": LINES,
        "a": 1,
        "pre": 1,
        "code": 1,
    }
    valid = read.tags == {tag: count * sections for tag, count in expected.items()}
    valid = valid and read.links == [f"https://example.org/{number}" for number in range(sections)]
    plain = re.sub(r"\]\([^)]*\)|[*#\[]", "", text)
    valid = valid and "".join(read.text).split() == plain.split()
    return {"input": len(text), "output": len(page)}, valid
