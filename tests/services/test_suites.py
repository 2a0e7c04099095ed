"""Every entry of every suite, once in miniature: what it runs is whole, and its claims are judged.

Some ten minutes, so `make test-suites` alone runs them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from uncia.experiment.progress import Silent
from uncia.suites import capacities, catalogue, emulated, left_out, page, perform, results
from uncia.suites.shorten import shorten

SHARE = 0.01

pytestmark = pytest.mark.skipif(
    "UNCIA_TEST_SUITES" not in os.environ, reason="the long form: make test-suites"
)

ENTRIES = [
    (name, entry)
    for name in catalogue.names()
    for entry, read in catalogue.find(name).entries.items()
    if read.form.runs
]


def miniature(data: Mapping[str, Any], only: Sequence[str], share: float) -> dict[str, Any]:
    """As with ``--quick``, of a hundredth; with small bursts to warm up."""
    shorter = shorten(data, only, share * SHARE)
    for experiment in shorter["experiments"].values():
        warmup = experiment.get("warmup", {})
        if "sizes" in warmup:
            warmup["sizes"] = [min(size, 20) for size in warmup["sizes"]]
            warmup.update({"interval": "1s"} if "interval" in warmup else {})
    return shorter


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("suite", "entry"), ENTRIES)
def test_an_entry_runs_in_miniature(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    suite: str,
    entry: str,
) -> None:
    monkeypatch.setattr(perform, "shorten", miniature)
    shorten_emulation = emulated.shorten
    # Long enough that some application is invoked.
    monkeypatch.setattr(
        emulated, "shorten", lambda document, share: shorten_emulation(document, share / 10)
    )
    # A capacity is found sooner, and less well.
    monkeypatch.setattr(capacities, "TOLERANCE", 0.3)
    found = catalogue.find(suite)
    state = perform.begin(tmp_path / "out", found.source, quick=True, resume=False)
    assert perform.carry_out(state, found.choose([entry]), Silent()) is None
    read = results.read(state, found)
    (of_entry,) = [item for item in read.entries if item.entry.name == entry]
    assert of_entry.failures == []
    assert [run.status for run in of_entry.runs] == [
        "not run" if left_out.lacks(of_entry.entry, run.name) else "whole" for run in of_entry.runs
    ]
    lacking: dict[str, set[str]] = {}
    for run in of_entry.runs:
        for sentence in left_out.lacks_by_experiment(of_entry.entry, run.name).values():
            if sentence:
                lacking.setdefault(sentence, set()).add(run.name)
    with capsys.disabled():
        for sentence, missing in lacking.items():
            print(f"\nleft out of {suite}/{entry} ({', '.join(sorted(missing))}): {sentence}")
    read.write_claims()
    html = page.write(read).read_text(encoding="utf-8")
    assert all(finding.id in html for finding in of_entry.findings)
