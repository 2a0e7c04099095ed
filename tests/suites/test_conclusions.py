"""A paper's conclusions: judged by the claims behind them, in reports and in pages."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from suite_rows import HEADER, claim, judged, suite, times, write_run

from uncia.errors import UnciaError
from uncia.report import page as pages
from uncia.suites import catalogue, conclusions, page
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED, as_json

VERDICTS = (REPRODUCED, DIFFERS, UNCHECKED, conclusions.NOT_RUN)

CLAIMS = {
    "slower": claim("slow.execution_mean > fast.execution_mean"),
    "by-half": claim("slow.execution_mean / fast.execution_mean > 1.5"),
    "never": {"paper": "It flies", "place": "page 2", "unavailable": "there are no wings"},
}
CONCLUSIONS = """\
called: Implications
conclusions:
  I: {paper: Slow is slow, place: page 1, claims: [fig1.slower]}
  II: {paper: "Slow | half", place: page 1, claims: ["fig1.[sb]*"]}
  III: {paper: It flies, place: page 2, claims: [fig1.never]}
  IV: {paper: Hints help, place: page 3, unavailable: nobody gives any}
"""


def made(tmp_path: Path, text: str = CONCLUSIONS) -> Path:
    folder = suite(tmp_path / "mine", CLAIMS)
    (folder / "suite.yaml").write_text(HEADER + text)
    return folder


def test_a_conclusion_is_what_its_claims_are(tmp_path: Path) -> None:
    folder, out = made(tmp_path), tmp_path / "out"
    form = catalogue.find(str(folder)).form
    verdicts = lambda: {  # noqa: E731
        it.name: it.verdict for it in conclusions.conclude(form, judged(folder, out).findings)
    }
    write_run(out / "fig1" / "only", times("slow", [12.0] * 30) + times("fast", [10.0] * 30))
    assert verdicts() == {
        "I": "reproduced",
        "II": "reproduced in part",
        "III": "cannot be checked here",
        "IV": "cannot be checked here",
    }
    write_run(out / "fig1" / "only", times("slow", [9.0] * 30) + times("fast", [10.0] * 30))
    assert verdicts()["I"] == verdicts()["II"] == "differs"
    write_run(out / "fig1" / "only", times("slow", [20.0] * 30) + times("fast", [10.0] * 30))
    assert verdicts()["II"] == "reproduced"
    assert {it.verdict for it in conclusions.conclude(form, [])} == {
        "not run",
        "cannot be checked here",
    }


def test_they_stand_in_the_report_with_our_figures(tmp_path: Path) -> None:
    folder, out = made(tmp_path), tmp_path / "out"
    write_run(out / "fig1" / "only", times("slow", [12.0] * 30) + times("fast", [10.0] * 30))
    html = pages.html(page.page(judged(folder, out)))
    for text in ("Implications", "Slow is slow (page 1)", "reproduced in part", "nobody gives any"):
        assert text in html
    assert "fig1.slower (reproduced): 1.2" in html


def test_a_page_has_them_from_the_claims_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = made(tmp_path), tmp_path / "out"
    write_run(out / "fig1" / "only", times("slow", [12.0] * 30) + times("fast", [10.0] * 30))
    claims = tmp_path / "claims.json"
    claims.write_text(as_json(judged(folder, out).findings))
    found = catalogue.find(str(folder))
    monkeypatch.setattr(catalogue, "find", lambda name: found)
    text = "a\n<!-- conclusions: {} -->\nold\n<!-- end of conclusions -->\nb\n"
    path = tmp_path / "page.md"
    path.write_text(text.format("mine") + text.format("other"))
    conclusions.main(["mine", str(claims), str(path)])
    written = path.read_text()
    assert written.count("old") == 1
    assert "| I | Slow is slow (page 1) | **reproduced** | fig1.slower (reproduced): 1.2" in written
    assert "Slow \\| half (page 1) | **reproduced in part** (1 reproduced, 1 differs)" in written
    again = path.read_text()
    conclusions.main(["mine", str(claims), str(path)])
    assert path.read_text() == again
    conclusions.main(["mine", "-", str(path)])
    assert "| I | Slow is slow (page 1) | **not run** | fig1.slower (not run) |" in path.read_text()
    # What was judged before some claims were there, and by one that is gone.
    (first,) = [it for it in judged(folder, out).findings if it.id == "fig1.slower"]
    claims.write_text(as_json([first, replace(first, id="fig1.slowest")]))
    conclusions.main(["mine", str(claims), str(path)])
    (line,) = [it for it in path.read_text().splitlines() if it.startswith("| II |")]
    assert "(1 reproduced, 1 not run)" in line
    assert line.endswith("; fig1.by-half (not run) |")
    assert "slowest" not in line
    for wrong in ("{}", "[{}]", "x"):
        claims.write_text(wrong)
        with pytest.raises(UnciaError, match=r"claims\.json"):
            conclusions.main(["mine", str(claims), str(path)])


def test_the_page_has_what_the_suite_says_now() -> None:
    path = Path(__file__).parents[2] / "docs" / "reproduce" / "serverlessbench.md"
    text = path.read_text(encoding="utf-8")
    form = catalogue.find("serverlessbench").form
    numerals = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]
    assert list(form.conclusions) == numerals
    entries = catalogue.find("serverlessbench").entries
    claims = [claim for entry in entries.values() for claim in entry.claims]
    for name, conclusion in form.conclusions.items():
        start = f"| {name} | {conclusion.paper} ({conclusion.place}) | **"
        (line,) = [it for it in text.splitlines() if it.startswith(start)]
        named = re.findall(rf"([\w.-]+) \((?:{'|'.join(VERDICTS)})\)", line)
        assert sorted(named) == sorted(conclusions.judged_by(conclusion, claims)), name


def test_the_page_names_every_entry() -> None:
    path = Path(__file__).parents[2] / "docs" / "reproduce" / "serverlessbench.md"
    named = re.findall(r"^uncia suite run .* --only (\S+)", path.read_text(), re.MULTILINE)
    entries = catalogue.find("serverlessbench").entries
    assert sorted(it for names in named for it in names.split(",")) == sorted(entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claims: [fig1.slower]", "no claim is called fig2.*"),
        ("claims: [fig1.slower]", "or unavailable says why"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, text: str, message: str) -> None:
    wrong = "claims: [fig2.*]" if "fig2" in message else "claims: []"
    with pytest.raises(UnciaError) as error:
        catalogue.find(str(made(tmp_path, CONCLUSIONS.replace(text, wrong))))
    assert message in str(error.value)
    assert "suite.yaml" in str(error.value)
