"""Reads a page as a browser would, as far as tests need it: sections, tables, scripts, loads."""

import json
import re
from html.parser import HTMLParser
from typing import Any

LOADING = {
    "src",
    "srcset",
    "href",
    "xlink:href",
    "data",
    "poster",
    "action",
    "formaction",
    "background",
    "ping",
}


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        sections: ids of the sections in order.
        links: the values of all attributes that make a browser load or follow something.
        scripts: id or type -> content of each script element.
        tables: for each table, its rows as lists of cell texts, the head first.
        places: names of the charts that the page has a place for.
        text: all text outside scripts and styles.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[str] = []
        self.links: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.tables: list[list[list[str]]] = []
        self.places: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self._script: str | None = None
        self._style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.links += [value for name, value in named.items() if name in LOADING]
        if tag == "section" and "id" in named:
            self.sections.append(named["id"])
        if "data-chart" in named:
            self.places.append(named["data-chart"])
        if tag == "script":
            self._script = named.get("id", "")
            self.scripts.append((self._script, ""))
        self._style = self._style or tag == "style"
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None
        if tag == "style":
            self._style = False
        if tag in ("td", "th"):
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            name, before = self.scripts[-1]
            self.scripts[-1] = (name, before + data)
        elif not self._style:
            self.text += data
            if self.open:
                self.tables[-1][-1][-1] += data

    def script(self, name: str) -> str:
        """The content of the one script element with this id."""
        (result,) = [content for item, content in self.scripts if item == name]
        return result

    @property
    def specs(self) -> dict[str, Any]:
        """The chart specifications by name."""
        result = json.loads(self.script("specs"))
        assert isinstance(result, dict)
        return result

    def table_with(self, *head: str) -> list[dict[str, str]]:
        """The rows of the first table that has these columns, by column."""
        for table in self.tables:
            if table and set(head) <= set(table[0]):
                return [dict(zip(table[0], row, strict=True)) for row in table[1:]]
        raise AssertionError(f"no table has the columns {head}")


def marks(spec: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """Every mark of a specification with the rows that it draws."""
    result: list[tuple[dict[str, Any], list[Any]]] = []

    def walk(node: dict[str, Any], inherited: list[Any]) -> None:
        rows = node["data"]["values"] if "data" in node else inherited
        if "mark" in node:
            result.append((node, rows))
        for child in node.get("layer", []):
            walk(child, rows)

    walk(spec, [])
    return result


def addresses(text: str) -> list[str]:
    """Web addresses in a text."""
    return re.findall(r"https?://[^\s\"'<>)]+", text)
