"""Gates end to end: two files are run in turn by real processes, and judged."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from run_helpers import Uncia, finish, status, wait_until

from uncia.experiment import repeat
from uncia.runs.folder import read_run

Command = Callable[..., tuple[int, str, str]]

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "gate" / "action.yml"
SLOW_S = 0.1
BURSTS = "{kind: burst, sizes: [8], bursts: 2, interval: 200ms}"


class Handler(BaseHTTPRequestHandler):
    """Answers at once, or after a while under ``/slow``."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/slow":
            time.sleep(SLOW_S)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a function that runs anyway."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def write(path: Path, url: str, *, name: str = "only", arrivals: str = BURSTS) -> Path:
    """An experiment file with one experiment, on a function that runs already."""
    path.write_text(
        "name: sample\nseed: 1\nplatform: {kind: http}\n"
        f"functions: {{f: {{url: '{url}'}}}}\n"
        f"experiments: {{{name}: {{function: f, arrivals: {arrivals}}}}}\n"
    )
    return path


@given(st.integers(4, 60), st.integers(0, 2**31))
def test_the_order_is_fair(repeats: int, seed: int) -> None:
    runs = list(repeat.order(repeats, seed))
    assert sorted(runs) == sorted((name, i + 1) for name in repeat.SIDES for i in range(repeats))
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    # Both runs of a pair follow one another, and which is first alternates.
    assert all(first[1] == second[1] for first, second in pairs)
    firsts = [first[0] for first, _ in pairs]
    assert all(a != b for a, b in itertools.pairwise(firsts))
    assert list(repeat.order(repeats, seed)) == runs


def test_which_is_first_depends_on_the_seed() -> None:
    assert {next(repeat.order(4, seed))[0] for seed in range(20)} == set(repeat.SIDES)


@dataclass(frozen=True)
class Done:
    """What the action left."""

    code: int
    printed: str
    summary: str
    output: str
    out: Path


@pytest.fixture(scope="module")
def done(server: str, engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A gate, run by the step of the GitHub action as GitHub does: inputs in the environment."""
    folder = tmp_path_factory.mktemp("gate")
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("id") == "gate"]
    program = folder / "temp" / "uncia" / "bin" / "uncia"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m uncia "$@"\n')
    program.chmod(0o755)
    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "UNCIA_ENGINE": str(engine_binary),
            "XDG_STATE_HOME": str(folder / "state"),
            "RUNNER_TEMP": str(folder / "temp"),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "BASE": str(write(folder / "base.yaml", f"{server}/")),
            "CHANGE": str(write(folder / "change.yaml", f"{server}/slow")),
            "CONDITIONS": "\n  only.p50>50%\nfailed>0\n\n",
            "REPEAT": "4",
            "ALLOW_NOT_JUDGED": "false",
            "OUT": str(folder / "out"),
        },
    )
    return Done(
        ended.returncode,
        ended.stdout,
        (folder / "summary").read_text(),
        (folder / "output").read_text(),
        folder / "out",
    )


def test_the_action_of_github_judges(done: Done) -> None:
    # On a machine that is noisy for one side only, the slowdown is not judged; it never holds.
    assert done.code in (1, 3)
    assert done.output == f"exit-code={done.code}\n"
    verdict = {1: "violated", 3: "not judged"}[done.code]
    for text in (done.printed, done.summary):
        assert verdict in text
        assert "only.p50" in text
    cases = list(ElementTree.parse(done.out / "gate.xml").iter("testcase"))
    assert [case.get("classname") for case in cases] == ["only.p50>50%", "failed>0"]
    assert [child.tag for child in cases[0]] == [{1: "failure", 3: "error"}[done.code]]
    assert [child.tag for child in cases[1]] == ["system-out"]
    assert "only.p50" in (done.out / "gate.html").read_text()


def test_a_gate_runs_pairs_of_one_seed_in_turn(done: Done) -> None:
    out = done.out
    folders = sorted(out.glob("*/*/"))
    assert [str(folder.relative_to(out)) for folder in folders] == [
        f"{name}/{pair:02d}" for name in repeat.SIDES for pair in range(1, 5)
    ]
    described = [read_run(folder) for folder in folders]
    assert {meta["status"] for meta in described} == {"complete"}
    assert [meta["seed"] for meta in described] == [1, 2, 3, 4] * 2
    begun = sorted(
        (meta["epoch_unix_ns"], folder.parent.name)
        for meta, folder in zip(described, folders, strict=True)
    )
    assert [name for _, name in begun] == [name for name, _ in repeat.order(4, 1)]
    assert not any((folder / "report.html").exists() for folder in folders)


def test_kept_runs_are_compared_in_pairs(done: Done, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "gate"
    shutil.copytree(done.out, out)
    # A drop there was not, however noisy the machine.
    conditions = ("--fail-on", "only.p50>50%", "--fail-on", "p50<50%", "--json", "-t", "slim")
    code, text, _ = command("compare", out / "base", out / "change", *conditions)
    assert code == done.code
    result = json.loads(text)
    (candidate,) = result["candidates"]
    assert candidate["run"] == "change (4 runs)"
    assert candidate["interleaved"]
    assert len(candidate["paths"]) == 4
    slower, faster = result["gates"]
    assert slower["verdict"] == {1: "violated", 3: "not judged"}[code]
    assert slower["value"] > 50
    assert slower["ci95"][0] < slower["value"] < slower["ci95"][1]
    assert faster["verdict"] != "violated"

    # A run that ended early is left out, and said; then the rest are no pairs any more.
    meta = out / "change" / "02" / "run.yaml"
    meta.write_text(meta.read_text().replace("status: complete", "status: interrupted"))
    _, text, _ = command("compare", out / "base", out / "change", "--json", "-t", "slim")
    again = json.loads(text)
    assert not again["candidates"][0]["interleaved"]
    assert len(again["candidates"][0]["paths"]) == 3
    assert any("02: left out, as it is interrupted." in text for text in again["warnings"])

    # Runs are given one by one as well, and each counts once.
    first, *others = sorted((out / "base").iterdir())
    against = [part for run in sorted((out / "change").iterdir()) for part in ("--against", run)]
    code, text, _ = command("compare", first, *others, *against, "--json", "-t", "slim")
    assert code == 0
    assert json.loads(text)["candidates"][0]["interleaved"]
    code, _, err = command("compare", first, first, *others, *against)
    assert code == 2
    assert "stands twice on one side" in err


def test_another_gate_does_not_mix_with_earlier_runs(
    done: Done, tmp_path: Path, command: Command, state_home: Path
) -> None:
    out = tmp_path / "gate"
    shutil.copytree(done.out, out)
    path = write(tmp_path / "a.yaml", "http://127.0.0.1:9/")
    code, _, err = command("gate", path, path, "--out", out)
    assert code == 2
    assert "already holds runs of a gate" in err
    (out / "base" / "notes").mkdir()
    code, _, err = command("gate", path, path, "--out", out, "--overwrite")
    assert code == 2
    assert "is not a run" in err
    assert len(list(out.glob("*/*/run.yaml"))) == 8


def test_runs_that_all_failed_are_a_failure(
    tmp_path: Path, command: Command, state_home: Path
) -> None:
    # Nothing listens there.
    path = write(tmp_path / "a.yaml", "http://127.0.0.1:9/", arrivals="{kind: burst, sizes: [2]}")
    arguments = ("gate", path, path, "--repeat", "4", "--fail-on", "p50>10%")
    code, out, err = command(*arguments, "--out", tmp_path / "out", "--allow-not-judged")
    assert code == 1
    # Each run has its line and its outcome; what all of them say is there once.
    for number in range(1, 9):
        assert err.count(f"Run {number} of 8: ") == 1
    assert err.count("Pricing the rows.") == 1
    assert len(re.findall(r"^ +\[1/1\] only: 2 requests: 2 .* in", err, re.MULTILINE)) == 8
    assert "4 of 4 runs: no request succeeded" in out
    assert "8 of 8 runs failed" in err
    code, _, err = command(
        *("compare", tmp_path / "out" / "base", tmp_path / "out" / "change", "-t", "slim"),
        *("--fail-on", "p50>10%", "--allow-not-judged"),
    )
    assert code == 3
    assert "cannot be computed" in err


def test_a_run_that_cannot_be_carried_out_ends_the_gate(
    tmp_path: Path, command: Command, state_home: Path
) -> None:
    path = write(tmp_path / "a.yaml", "http://127.0.0.1:9/", arrivals="{kind: burst, sizes: [2]}")
    (first, _), (second, _), *_ = repeat.order(4, 1)
    out = tmp_path / "out"
    out.mkdir()
    (out / second).write_text("in the way")
    code, text, err = command("gate", path, path, "--quiet", "--out", out)
    assert (code, text) == (2, "")
    assert f"cannot write to {out / second / '01'}" in err
    assert f"The gate ended there; 0 whole pairs of runs are in {out}." in err
    assert [run.name for run in (out / first).iterdir()] == ["01"]


def test_an_interrupted_gate_keeps_what_was_run(
    server: str, tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    path = write(
        tmp_path / "a.yaml", f"{server}/", arrivals="{kind: constant, rate: 200/s, duration: 3s}"
    )
    out = tmp_path / "out"
    process = uncia("gate", path, path, "--repeat", "30", "--out", out)

    def third_run_sends() -> bool:
        parts = list(out.glob("*/02/invocations.*.arrows"))
        return any(part.stat().st_size > 20_000 for part in parts)

    wait_until(third_run_sends, process)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert "nothing is judged. 1 whole pairs of runs are in" in ended.err
    assert ended.out == ""
    states = {str(run.relative_to(out)): status(run) for run in out.glob("*/*/")}
    first = next(repeat.order(30, 1))[0]
    second = {"base": "change", "change": "base"}[first]
    assert states == {"base/01": "complete", "change/01": "complete", f"{second}/02": "interrupted"}
    assert not list((state_home / "journal").glob("*"))


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"name": "other"}, (), "the two files have no experiment in common (only and other)"),
        (
            {"arrivals": "{kind: burst, sizes: [3]}"},
            (),
            "experiment only sends f one burst of",
        ),
        ({}, ("--fail-on", "warm.p50>10%"), "there is no experiment warm in both files"),
        ({}, ("--fail-on", "p98>10%"), "there is no metric 'p98'"),
        ({}, ("--tariff", "no-such"), "there is no tariff 'no-such'"),
        ({}, ("--fail-on", "cost:no-such>5%"), "there is no tariff 'no-such'"),
        ({}, ("--repeat", "1"), "--repeat 1: too few runs to know how runs differ"),
        ({}, ("--repeat", "3"), "a gate needs 4 a side"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    change: dict[str, str],
    options: tuple[str, ...],
    says: str,
    tmp_path: Path,
    command: Command,
    state_home: Path,
) -> None:
    arrivals = "{kind: burst, sizes: [2]}"
    base = write(tmp_path / "base.yaml", "http://127.0.0.1:9/", arrivals=arrivals)
    other = write(
        tmp_path / "change.yaml", "http://127.0.0.1:9/", **{"arrivals": arrivals, **change}
    )
    out = tmp_path / "out"
    code, text, err = command("gate", base, other, "--out", out, *options)
    assert code == 2
    assert says in err
    assert text == ""
    assert not out.exists()
