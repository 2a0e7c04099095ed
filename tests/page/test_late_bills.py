"""The page's meter goes on after a platform was too busy to answer it."""

import threading
from typing import Any

import pytest

from uncia.cli import meter
from uncia.errors import RunFailedError
from uncia.tariffs.catalogue import resolve


@pytest.mark.parametrize(("failures", "warnings"), [(2, 0), (7, 1)])
def test_bills_are_shown_after_failures(
    monkeypatch: pytest.MonkeyPatch, failures: int, warnings: int
) -> None:
    left = [failures]
    shown = threading.Event()
    warned: list[object] = []

    def fetch(*_arguments: object) -> Any:
        left[0] -= 1
        raise RunFailedError("busy")

    def watched(*_arguments: object) -> bool:
        # From now on the platform answers, with nothing to bill.
        if left[0] == 0:
            monkeypatch.setattr(meter._Tally, "take", lambda *_: True)
            monkeypatch.setattr(meter._Tally, "bills", lambda *_: {})
        return True

    monkeypatch.setattr(meter, "_RETRY_S", 0.01)
    monkeypatch.setattr(meter, "fetch_page", fetch)
    monkeypatch.setattr(meter, "wait_for_viewers", watched)
    monkeypatch.setattr(meter, "show_bills", lambda *_: shown.set())
    (tariff,) = resolve(["aws-lambda-x86"])
    with meter.Meter("127.0.0.1:1", 0, tariff, warned.append):
        assert shown.wait(60)
    assert len(warned) == warnings
