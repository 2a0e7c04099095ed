"""The guide on chains as a reader follows it: its file, dry run, refusals and queries."""

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from run_helpers import Uncia, finish

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "chain-requests.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)]


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file of the guide, in which commands are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "videos.yaml").write_text(blocks("yaml")[0])
    return tmp_path


def test_the_dry_run_shows_what_the_guide_quotes(
    command: Callable[..., tuple[int, str, str]], guide: Path
) -> None:
    code, out, error = command("run", "videos.yaml", "--dry-run")
    assert code == 0, error
    shown = [cells(line) for line in out.splitlines()]
    quoted = [cells(line) for line in GUIDE.splitlines() if line.startswith(("│", "┃"))]
    assert len(quoted) == 6
    assert all(line in shown for line in quoted), out


def test_the_file_runs_and_the_queries_answer(uncia: Uncia, guide: Path) -> None:
    assert "uncia run videos.yaml --out run" in blocks("console")[0]
    ended = finish(uncia("run", "videos.yaml", "--out", "run", "--quiet"))
    assert ended.code == 0, ended.err
    stages, chains = (duckdb.sql(query).fetchall() for query in blocks("sql")[:2])
    names = ["opening", "trailer", "film", "store"]
    result = {(experiment, stage): rest for experiment, stage, *rest in stages}
    assert set(result) == {(e, s) for e in ("videos.warmup", "videos") for s in names}
    count = len(chains)
    assert count > 5
    assert [number for number, *_ in chains] == list(range(count))
    assert {requests for _, requests, _ in chains} == {4}
    assert all(latency > 0 for *_, latency in chains)
    for (experiment, stage), (requests, response, between) in result.items():
        assert requests == (2 if experiment == "videos.warmup" else count)
        assert response > 0
        assert (between is None) == (stage == "opening")


REFUSED = re.findall(r"^\| (.+?) \| `(.+)` \|$", GUIDE, re.MULTILINE)
CHANGES = {
    "`after: [trailer, flim]`": ("after: [trailer, film]", "after: [trailer, flim]"),
    "in `trailer`: `after: store`": ("frames: 20}", "frames: 20}\n        after: store"),
    "in `trailer`: `after: film`": ("frames: 20}", "frames: 20}\n        after: film"),
    "in `trailer`: `after: trailer`": ("frames: 20}", "frames: 20}\n        after: trailer"),
    "`{{answers.flim.digest}}`": ("answers.film.digest", "answers.flim.digest"),
    "`{{answer.digest}}` in `store`": ("answers.film.digest", "answer.digest"),
    "`{{awnser.next}}`": ("{{answer.next}}", "{{awnser.next}}"),
    "`frame: 50`": ("frames: 50", "frame: 50"),
    "`function: thumbnail`": ("{function: thumbnails", "{function: thumbnail"),
}


def test_every_refusal_of_the_guide_is_tried() -> None:
    assert [written for written, _ in REFUSED] == list(CHANGES)


@pytest.mark.parametrize(("written", "message"), REFUSED)
def test_what_is_refused_is_refused_so(written: str, message: str) -> None:
    before, after = CHANGES[written]
    text = blocks("yaml")[0]
    assert before in text
    document = yamlio.load(text.replace(before, after, 1), "videos.yaml")
    with pytest.raises(UnciaError) as caught:
        plan(checks.check(document), Sources(document, Path()))
    assert re.match(r"videos.yaml:\d+: chains\.video\.stages\.", caught.value.message)
    assert message in caught.value.message
