"""Verdicts as JUnit XML, which continuous integration shows as tests."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from uncia.stats.verdicts import Finding

# XML 1.0 allows no other control characters.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(findings: Sequence[Finding], *, allow_not_judged: bool = False) -> str:
    """Write one test case for each metric judged.

    Args:
        findings: the verdicts; violated ones become failures, those not judged errors.
        allow_not_judged: those not judged become skipped tests, unless there was nothing to judge.
    """
    suite = ElementTree.Element("testsuite", name="uncia gate", tests=str(len(findings)))
    counts = dict.fromkeys(("failures", "errors", "skipped"), 0)
    for finding in findings:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_clean(finding.gate.text),
            name=_clean(f"{finding.subject} ({finding.run})"),
        )
        if finding.verdict == "holds":
            ElementTree.SubElement(case, "system-out").text = _clean(finding.reason)
            continue
        tag, key = "failure", "failures"
        if finding.verdict == "not judged":
            tag, key = "error", "errors"
            if allow_not_judged and not finding.missing:
                tag, key = "skipped", "skipped"
        counts[key] += 1
        message = _clean(f"{finding.verdict}: {finding.reason}")
        ElementTree.SubElement(case, tag, message=message)
    for key, count in counts.items():
        suite.set(key, str(count))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
