"""Coordinated omission: a server that stalls changes what is measured, not what is sent.

A closed-loop tool waits for the stalled answers before it sends more, so a stall of two seconds is
a handful of slow requests to it. Sent at the scheduled times, every request that was due in those
two seconds waits, and is counted.
"""

import re
import shutil
import subprocess

import numpy as np
import pytest
from load_helpers import Server, Stall

import uncia
from uncia.stats.quantiles import QUANTILES, quantile

RATE_PER_S, DURATION_S, STALL_S = 100, 6, 2
# Half of a stall: far more than any answer takes otherwise, far less than what the p99 must show.
CLEARLY_S = STALL_S / 2
# A machine on which the sender is later than this half of the time measures nothing.
LAG_S = 0.1

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def test_every_request_is_sent_on_time_and_charged_for_the_stall() -> None:
    with Server(Stall(after_s=2, for_s=STALL_S)) as server:
        rows = uncia.load(server.url, rate=f"{RATE_PER_S}/s", duration=f"{DURATION_S}s")
        assert len(server.requests) == RATE_PER_S * DURATION_S
    scheduled, sent, received = (
        rows.column(name).to_numpy() for name in ("scheduled", "sent", "received")
    )
    step = 1_000_000_000 // RATE_PER_S
    assert scheduled.tolist() == [step * number for number in range(RATE_PER_S * DURATION_S)]
    assert set(rows.column("outcome").to_pylist()) == {"ok"}
    assert set(rows.column("open_loop").to_pylist()) == {True}
    assert np.median(sent - scheduled) < LAG_S * 1e9
    latency = np.sort(received - scheduled)
    p99 = quantile(latency, QUANTILES["p99"])
    assert p99 is not None
    assert p99 > CLEARLY_S * 1e9
    # A third of the schedule fell into the stall, and waited for a second on average.
    waited = int((latency > STALL_S / 4 * 1e9).sum())
    assert waited > RATE_PER_S * STALL_S / 2


def test_a_closed_loop_tool_does_not_see_the_same_stall() -> None:
    wrk = shutil.which("wrk")
    if wrk is None:
        pytest.skip("wrk is not installed, so there is nothing to compare with")
    with Server(Stall(after_s=2, for_s=STALL_S)) as server:
        told = subprocess.run(
            [wrk, "--latency", "-t1", "-c4", f"-d{DURATION_S}s", server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        answered = len(server.requests)
    found = re.search(r"^\s*99%\s+([0-9.]+)(us|ms|s)$", told, re.MULTILINE)
    assert found is not None, told
    # Its four connections met the stall once each.
    if answered < 100 * 4:
        pytest.skip(f"only {answered} requests in {DURATION_S} s: four of them are its p99")
    assert float(found[1]) * _UNITS[found[2]] < CLEARLY_S, told
