"""Coordinated omission: a server that stalls changes what is measured, not what is sent.

A closed-loop tool waits for the stalled answers before it sends more, so a stall of two seconds is
met by as many requests as it has connections. Sent at the scheduled times, every request that was
due in those two seconds meets it, and is counted.
"""

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
LAG_S = STALL_S / 4


def test_every_request_is_sent_on_time_and_charged_for_the_stall() -> None:
    stall = Stall(after_s=2, for_s=STALL_S)
    with Server(stall) as server:
        # Probes of the round trip are connections, not requests.
        rows = uncia.load(server.url, rate=f"{RATE_PER_S}/s", duration=f"{DURATION_S}s")
        # Whatever the answers did, most of what was due in the stall came in the stall.
        assert len(stall.met) > RATE_PER_S * STALL_S / 2
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


def test_a_closed_loop_tool_hardly_meets_the_same_stall() -> None:
    wrk = shutil.which("wrk")
    if wrk is None:
        pytest.skip("wrk is not installed, so there is nothing to compare with")
    connections = 4
    stall = Stall(after_s=2, for_s=STALL_S)
    with Server(stall) as server:
        command = [wrk, "-t1", f"-c{connections}", f"-d{DURATION_S}s", server.url]
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        answered = len(server.requests)
    # Each connection waited for one answer and sent nothing else meanwhile. (What wrk prints is
    # higher: it adds values for requests that it never sent.)
    assert len(stall.met) <= connections
    assert answered > connections * 10
