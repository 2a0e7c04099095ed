"""Damaged results of a suite: each is named, and nothing is judged or overwritten by less."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import suite_rows
from suite_rows import claim, suite, times, write_run
from typer.testing import CliRunner, Result

from uncia import cli
from uncia.errors import UnciaError
from uncia.report import data, run_sets
from uncia.suites import catalogue, perform, results
from uncia.suites.catalogue import SuiteEntry
from uncia.suites.target import Target

CLAIMS = {"faster": claim("slow.execution_mean / fast.execution_mean > 1.5")}
ROWS = times("slow", [20.0 + number % 5 for number in range(40)]) + times(
    "fast", [10.0 + number % 5 for number in range(40)]
)


STATE = '{"form": 1, "suite": "x", "quick": false'


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Results that are whole, with what was made of them."""
    mine = suite(tmp_path / "mine", CLAIMS)
    found = catalogue.find(str(mine))
    folder = tmp_path / "out"
    write_run(folder / "fig1" / "only", ROWS)
    state = perform.State(folder, found.source)
    document = perform.run_document(state, found.entries["fig1"], "only")
    state.files["fig1/only"] = perform.digest_of(document)
    state.write()
    report(folder)
    return folder


def report(folder: Path) -> str:
    done = CliRunner().invoke(cli.build("suite"), ["suite", "report", str(folder)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def folder_is_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("")


def entry_is_a_file(run: Path) -> None:
    shutil.rmtree(run.parent)
    run.parent.write_text("")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no description": (lambda run: (run / "run.yaml").unlink(), "run.yaml is missing"),
    "an empty description": (
        lambda run: (run / "run.yaml").write_text(""),
        "run.yaml is empty: the description of a run is a mapping of keys",
    ),
    "a description of nothing": (lambda run: (run / "run.yaml").write_text("7"), "is damaged"),
    "a description in another encoding": (
        lambda run: (run / "run.yaml").write_bytes("status: völlig\n".encode("latin-1")),
        "run.yaml is damaged: it is not UTF-8 text (byte 9)",
    ),
    "a description with a day that is none": (
        lambda run: (run / "run.yaml").write_text("begun: 2025-02-30\n"),
        "run.yaml is not valid YAML",
    ),
    "a description cut off": (
        lambda run: (run / "run.yaml").write_text("{status: "),
        "run.yaml is not valid YAML",
    ),
    "no rows": (
        lambda run: (run / "invocations.parquet").unlink(),
        "invocations.parquet is missing",
    ),
    "rows cut off": (
        lambda run: (run / "invocations.parquet").write_bytes(b"PAR1 not"),
        "invocations.parquet",
    ),
    "nothing of the machine": (
        lambda run: (run / "machine.parquet").unlink(),
        "machine.parquet is missing",
    ),
    "a summary of nothing": (
        lambda run: (run / "summary.json").write_text("[]"),
        "summary.json: the summary of a run is an object with keys",
    ),
    "no folder": (shutil.rmtree, "only is missing"),
    "no entry": (lambda run: shutil.rmtree(run.parent), "only is missing"),
    "a file": (folder_is_a_file, "only is not a folder"),
    "a file for an entry": (entry_is_a_file, "only is missing"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_nothing_is_overwritten(out: Path, name: str) -> None:
    assert "fig1.faster: reproduced" in report(out)
    before = {path: path.read_bytes() for path in out.glob("*.*")}
    assert {path.name for path in before} == {"claims.json", "report.html", "suite.json"}
    damage, words = DAMAGES[name]
    damage(out / "fig1" / "only")
    with pytest.raises(UnciaError) as error:
        report(out)
    assert error.value.exit_code == 1
    assert "fig1/only: it is damaged: " in error.value.message
    assert words in error.value.message
    assert {path: path.read_bytes() for path in out.glob("*.*")} == before
    # It is to be carried out again, and no figure is taken from it.
    state = perform.State.read(out)
    found = catalogue.find(state.suite)
    read = results.read(state, found)
    assert read.failures
    assert [finding.ours for finding in read.findings] == [None]


def test_the_hint_on_a_damaged_run_is_a_command_that_goes_on_with_the_results(out: Path) -> None:
    state = replace(perform.State.read(out), quick=True, target=Target(like="gcp"))
    state.write()
    (out / "fig1" / "only" / "run.yaml").unlink()
    with pytest.raises(UnciaError, match=rf"{state.suite} --quick --like gcp --resume --out {out}"):
        report(out)


def test_what_was_never_run_is_not_damaged(out: Path) -> None:
    state = perform.State.read(out)
    del state.files["fig1/only"]
    state.write()
    shutil.rmtree(out / "fig1")
    assert "No claims were judged: " in report(out)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "the key form is missing"),
        ("[]", "it is not an object with keys"),
        ("", "it is not JSON"),
        ('{"form": 1, "suite": 7}', "suite is not a text"),
        ('{"form": 1, "suite": "x", "quick": false, "files": []}', "files is not an object"),
        ('{"form": 9}', "the key suite is missing"),
        (
            f'{STATE}, "files": {{"fig1/only": 5}}, "errors": {{}}}}',
            "files, fig1/only is not a text",
        ),
        (
            f'{STATE}, "files": {{}}, "errors": {{"fig1/only": 5}}}}',
            "errors, fig1/only is not a text",
        ),
        (f'{STATE}, "files": {{}}, "errors": {{}}, "like": 7}}', "like is not a text"),
    ],
)
def test_a_damaged_state_is_told_in_words(out: Path, text: str, words: str) -> None:
    (out / perform.STATE).write_text(text)
    with pytest.raises(UnciaError) as error:
        report(out)
    assert "suite.json is damaged: " in error.value.message
    assert words in error.value.message
    assert "Error(" not in error.value.message


def test_a_file_is_no_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UnciaError, match="is a file, not the folder of a suite's results"):
        report(tmp_path / "out")


def test_a_state_of_another_version_says_so(out: Path) -> None:
    content = json.loads((out / perform.STATE).read_text())
    (out / perform.STATE).write_text(json.dumps({**content, "form": 9}))
    with pytest.raises(UnciaError, match=r"another version of uncia \(form 9\)"):
        report(out)


def test_a_run_without_its_rows_is_no_run_without_requests(out: Path) -> None:
    run = out / "fig1" / "only"
    assert data.load(run).invocations.num_rows == len(ROWS)
    (run / "invocations.parquet").unlink()
    with pytest.raises(UnciaError, match=r"invocations\.parquet is missing"):
        data.load(run)


def test_a_set_of_runs_does_not_shrink_by_one_without_description(tmp_path: Path) -> None:
    for name in ("01", "02"):
        suite_rows.write_run(tmp_path / name, ROWS)
    assert len(run_sets.find(tmp_path).folders) == 2
    (tmp_path / "02" / "run.yaml").unlink()
    with pytest.raises(UnciaError, match=r"02 is damaged: it has rows, and run\.yaml is missing"):
        run_sets.find(tmp_path)


def test_carrying_out_one_entry_overwrites_nothing_beside_damage_of_another(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Path(perform.State.read(out).suite)
    (mine / "other.yaml").write_text((mine / "fig1.yaml").read_text())
    carried_out: list[str] = []

    def carry_out(state: perform.State, entries: list[SuiteEntry], *_: object) -> int | None:
        carried_out.extend(entry.name for entry in entries)
        return code

    monkeypatch.setattr(perform, "carry_out", carry_out)

    def run(*names: str) -> Result:
        only = [word for name in names for word in ("--only", name)]
        arguments = ["suite", "run", str(mine), "--resume", "--out", str(out), "--quiet", *only]
        return CliRunner().invoke(cli.build("suite"), arguments)

    code: int | None = None
    before = {path: path.read_bytes() for path in out.glob("*.*")}
    (out / "fig1" / "only" / "run.yaml").write_text("")
    done = run("other")
    assert carried_out == ["other"]
    assert isinstance(done.exception, UnciaError)
    assert "fig1/only: it is damaged: " in done.exception.message
    assert {path: path.read_bytes() for path in out.glob("*.*")} == before
    # What was just carried out has failed if it is wrong, and is shown so.
    done = run("fig1")
    assert (done.exit_code, "Failed: fig1/only" in done.stderr) == (1, True)
    assert (out / "claims.json").read_bytes() != before[out / "claims.json"]
    # Until a signal came it may not have been reached.
    code = 130
    before = {path: path.read_bytes() for path in out.glob("*.*")}
    done = run("fig1")
    assert isinstance(done.exception, UnciaError)
    assert "Interrupted. To go on: uncia suite run" in done.stderr
    assert {path: path.read_bytes() for path in out.glob("*.*")} == before
