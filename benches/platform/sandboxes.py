"""What a cold start takes in each sandbox: the platform's own, and containers of OCI runtimes.

Starts are of each in turn, one at a time, from nothing (`start_from: fresh`); what is not installed
is left out, and named. *Start* is the time from the client's request to the handler's first line,
as in `starts.py`; *sandbox* is the part of it that the sandbox takes, `cgroup` to `exec`.

    .venv/bin/python benches/platform/sandboxes.py [--starts 100] [--node]

The engine is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from ending import stop_on_sigterm
from starts import PHASES, Phases, Platform, show

from uncia import engine

SANDBOX_PHASES = ("cgroup", "spawn", "network", "mounts", "create", "exec")


def installed() -> dict[str, str | None]:
    """The OCI runtimes that the engine knows, with versions; None of what is not installed."""
    text = subprocess.run([engine.binary(), "probe"], capture_output=True, check=True).stdout
    runtimes: dict[str, str | None] = json.loads(text)["features"]["oci_runtimes"]
    return runtimes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--starts", type=int, default=100, help="starts of each")
    parser.add_argument("--node", action="store_true", help="functions in Node.js, not Python")
    options = parser.parse_args()
    runtimes = installed()
    for name, version in runtimes.items():
        print(f"{name} {version}" if version else f"{name} is not installed")
    names = ["process", *(name for name, version in runtimes.items() if version)]
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        platform = Platform(Path(folder) / "state")
        try:
            fresh = {"uncia:keep-alive-ms": "1", "uncia:start-from": "fresh"}
            for name in names:
                tags = fresh | {"uncia:sandbox": name}
                platform.create(name, tags, [], node=options.node, folder=None)
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(options.starts):
                for name in names:
                    (start,) = platform.invoke_at_once(name, 1, 0)
                    times[name].append(start.handler_ms)
                    # Until the last one is gone.
                    time.sleep(0.1)
            columns: dict[str, Phases] = {}
            for name in names:
                phases = platform.phases(name)
                parts = zip(*(phases[it] for it in SANDBOX_PHASES if phases[it]), strict=True)
                columns[name] = {phase: phases[phase] for phase in PHASES}
                columns[name]["sandbox"] = [sum(part) for part in parts]
                columns[name]["start"] = times[name]
            show("one at a time", columns, {})
        finally:
            platform.stop()


if __name__ == "__main__":
    stop_on_sigterm()
    main()
