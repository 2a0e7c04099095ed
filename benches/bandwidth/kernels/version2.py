"""Runs the tests to which version 2 of control groups matters, under a kernel that has no other.

    .venv/bin/python benches/bandwidth/kernels/version2.py [--kernel VMLINUZ --modules DIR]

Without a kernel Debian's is fetched by apt-get into target/kernels. The tests are those of
crates/cgroup, of the sandbox as far as groups decide about them, and of two files in Python.
Exits with 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from guest import Guest, GuestError

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "target" / "kernels"
PACKAGE = "linux-image-amd64"
# Of the sandbox's tests, by parts of their names: counters, limits, freezing, quotas, ends, starts.
SANDBOX = (
    "cpu_time",
    "memory",
    "peak",
    "throttl",
    "frozen",
    "freezing",
    "scaled_down",
    "event_driven",
    "forks_without_end",
    "nothing_is_left",
    "swept",
    "version_2",
    "shar",
    "zygote",
    "prepared",
    "started_runtimes",
    "spawner",
)
PYTHON = ("tests/platforms/test_cpu_groups_v2.py", "tests/bandwidth/test_limits.py")


def fetched() -> tuple[Path, Path]:
    """Debian's kernel and its modules, unpacked in target/kernels.

    Raises:
        GuestError: apt-get does not have it.
    """
    if not list(KERNELS.glob("boot/vmlinuz-*")):
        KERNELS.parent.mkdir(exist_ok=True)
        try:
            shown = subprocess.run(
                ["apt-cache", "depends", PACKAGE], capture_output=True, text=True, check=True
            ).stdout
            name = next(
                word
                for word in shown.split()
                if word.startswith("linux-image-") and word != PACKAGE
            )
            with tempfile.TemporaryDirectory(dir=KERNELS.parent, prefix="kernels-") as folder:
                subprocess.run(["apt-get", "download", "-q", name], cwd=folder, check=True)
                (package,) = Path(folder).glob(f"{name}_*.deb")
                subprocess.run(["dpkg", "-x", package, Path(folder) / "unpacked"], check=True)
                (Path(folder) / "unpacked").rename(KERNELS)  # Whole, or not at all.
        except (OSError, subprocess.CalledProcessError, StopIteration, ValueError) as error:
            raise GuestError(
                f"no kernel could be fetched by apt-get ({error}): name one with --kernel"
            ) from error
    kernel = sorted(KERNELS.glob("boot/vmlinuz-*"))[-1]
    release = kernel.name.removeprefix("vmlinuz-")
    (modules,) = [path for path in KERNELS.glob("**/modules/*") if path.name == release]
    return kernel, modules


def test_programs() -> dict[str, Path]:
    """The programs of the tests, built: by the name of what they test."""
    command = ["cargo", "test", "--release", "--locked", "--no-run", "--message-format=json"]
    built = subprocess.run(
        [*command, "--package=uncia-cgroup", "--package=uncia-worker"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return {
        message["target"]["name"]: Path(message["executable"])
        for message in messages
        if message.get("executable") and message["profile"]["test"]
    }


def script(programs: dict[str, Path], parts: list[str] | None) -> str:
    """Return what the guest does: every step, whatever came of those before.

    With `parts` only the tests in Rust with these in their names; with none of them, those in
    Python.
    """
    pytest = [ROOT / ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    steps = [
        [programs["uncia_cgroup"]],
        *([programs["sandbox"], "--test-threads=1", part] for part in parts or SANDBOX),
        [*pytest, "--timeout=1800", *(ROOT / file for file in PYTHON)],
    ]
    if parts == []:
        steps = steps[-1:]
    elif parts is not None:
        steps = [*([programs["uncia_cgroup"], part] for part in parts), *steps[1:-1]]
    lines = ["failed=0", "export HOME=/root TMPDIR=/tmp", f"cd {shlex.quote(str(ROOT))}"]
    lines.append("export PYTHONPATH=$PWD/python")
    for step in steps:
        command = shlex.join(str(word) for word in step)
        lines += [f"echo '+ '{shlex.quote(command)}", f"{command} || failed=1"]
    return "\n".join([*lines, "exit $failed"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=Path, help="a vmlinuz; without it Debian's is fetched")
    parser.add_argument("--modules", type=Path, help="lib/modules/RELEASE of the kernel")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument(
        "--part", action="append", help="only the tests in Rust with this in their names"
    )
    parser.add_argument(
        "--python", action="store_const", const=[], dest="part", help="only the tests in Python"
    )
    parser.add_argument("--timeout", type=float, default=5400, help="s")
    arguments = parser.parse_args()
    if (arguments.kernel is None) != (arguments.modules is None):
        parser.error("--kernel and --modules go together")
    try:
        if arguments.kernel is None:
            arguments.kernel, arguments.modules = fetched()
        guest = Guest(arguments.kernel, arguments.modules, cgroups=2, cpus=arguments.cpus)
        guest.check()
        programs = test_programs()
        with tempfile.TemporaryDirectory(prefix="uncia-guest-out-") as out:
            (Path(out) / "steps").write_text(script(programs, arguments.part))
            return guest.run(["sh", "/out/steps"], Path(out), arguments.timeout)
    except GuestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {error.cmd[0]} failed with status {error.returncode}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
