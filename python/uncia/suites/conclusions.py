"""What a paper concludes, by the verdicts on the claims behind it.

Reference pages have them in a table, which is made of ``claims.json``:
``python -m uncia.suites.conclusions SUITE CLAIMS PAGE`` writes it into a page, between
``<!-- conclusions: SUITE -->`` and ``<!-- end of conclusions -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.suites import catalogue
from uncia.suites.catalogue import Suite
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED, Finding
from uncia.suites.forms import Conclusion
from uncia.suites.forms import Suite as SuiteForm

IN_PART: Final = "reproduced in part"
NOT_RUN: Final = "not run"

_SECTION: Final = re.compile(
    r"<!-- conclusions: (?P<suite>[\w-]+) -->\n.*?<!-- end of conclusions -->", re.DOTALL
)


@dataclass(frozen=True)
class Concluded:
    """A conclusion with what was found.

    Attributes:
        name: in the paper, such as ``IV``.
        form: what it says, and by which claims it is judged.
        findings: on these claims; none if nothing was run.
    """

    name: str
    form: Conclusion
    findings: Sequence[Finding]

    @property
    def verdict(self) -> str:
        """All judged claims agree with the paper, none, or some; or none could be judged."""
        if self.form.unavailable is None and not self.findings:
            return NOT_RUN
        judged = {item.verdict for item in self.findings} - {UNCHECKED}
        if not judged:
            return UNCHECKED
        return judged.pop() if len(judged) == 1 else IN_PART

    @property
    def ours(self) -> list[str]:
        """What was found, a sentence for each claim, with its figures."""
        return [f"{item.id} ({item.verdict}): {item.why}" for item in self.findings]

    @property
    def why(self) -> str:
        """Why it cannot be judged at all; "" if it can."""
        return self.form.unavailable or ""


def conclude(form: SuiteForm, findings: Sequence[Finding]) -> list[Concluded]:
    """The conclusions of a suite, in the paper's order."""
    return [
        Concluded(
            name,
            conclusion,
            [
                item
                for item in findings
                if any(fnmatchcase(item.id, pattern) for pattern in conclusion.claims)
            ],
        )
        for name, conclusion in form.conclusions.items()
    ]


def read_findings(path: Path) -> list[Finding]:
    """Read ``claims.json``.

    Raises:
        UnciaError: it is missing or something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, list):
            raise TypeError("it is no list")
        return [Finding(**item) for item in content]
    except FileNotFoundError as error:
        raise UnciaError(f"there is no {path}") from error
    except (OSError, ValueError, TypeError) as error:
        raise UnciaError(f"{path} is no claims.json of a suite: {error}") from error


def judged_by(form: Conclusion, claims: Iterable[str]) -> list[str]:
    """Those of a suite's claims by which a conclusion is judged."""
    return [it for it in claims if any(fnmatchcase(it, pattern) for pattern in form.claims)]


def table(suite: Suite, findings: Sequence[Finding]) -> str:
    """The conclusions as a table of Markdown, with claims of the suite that were not run yet."""
    every = [claim for entry in suite.entries.values() for claim in entry.claims]
    known = {item.id for item in findings}
    lines = ["| | the paper | here | by |", "|---|---|---|---|"]
    for item in conclude(suite.form, [it for it in findings if it.id in every]):
        unknown = [it for it in judged_by(item.form, every) if it not in known]
        counts = [
            f"{count} {word}"
            for word in (REPRODUCED, DIFFERS, UNCHECKED)
            if (count := sum(found.verdict == word for found in item.findings))
        ]
        if counts and unknown:
            counts.append(f"{len(unknown)} {NOT_RUN}")
        here = f"**{item.verdict}**"
        here += f" ({', '.join(counts)})" if len(counts) > 1 or len(item.findings) > 1 else ""
        ours = [*item.ours, *(f"{it} ({NOT_RUN})" for it in unknown)]
        by = "; ".join(ours) or item.why
        claim = f"{item.form.paper} ({item.form.place})"
        lines.append(f"| {item.name} | {_cell(claim)} | {here} | {_cell(by)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def update(page: str, suite: str, findings: Sequence[Finding]) -> str:
    """The page with the table of a suite made anew."""
    made = table(catalogue.find(suite), findings)

    def replaced(match: re.Match[str]) -> str:
        if match["suite"] != suite:
            return match[0]
        return f"<!-- conclusions: {suite} -->\n{made}<!-- end of conclusions -->"

    return _SECTION.sub(replaced, page)


def main(arguments: Sequence[str]) -> None:
    """Write the table of a suite into a page.

    Args:
        arguments: the suite, ``claims.json`` (``-`` for a table of what is judged, before any run)
            and the page.
    """
    suite, claims, page = arguments
    findings = [] if claims == "-" else read_findings(Path(claims))
    path = Path(page)
    path.write_text(update(path.read_text(encoding="utf-8"), suite, findings), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
