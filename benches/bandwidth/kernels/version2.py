"""Runs the tests to which version 2 of control groups matters, under kernels that have no other.

    .venv/bin/python benches/bandwidth/kernels/version2.py [--kernel 6.1] [--only PART] [-k WORDS]

The kernels are Debian's, 6.1 and 6.12 unless others are named, fetched by apt-get into
target/kernels; so is QEMU, if that of this machine is older than 10. The tests are those of
crates/cgroup and crates/monitor, of the sandbox, and the end-to-end tests of the platform. Their
programs are built here; the guests, all at once, only run them. Every failure, and every test that
was not run, is listed at the end with its reason. Exits with 1 if one has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from guest import QEMU, QEMU_OF_SEVERAL_CPUS, Guest, GuestError
from packages import Packages

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "target" / "kernels"
SERIES = ("6.1", "6.12")

# What the guest's tests multiply their bounds of time by: an emulated processor is some twenty
# times slower, and this machine may have other work.
TIME_FACTOR = 10
# Of one test in Python, in s.
TEST_TIMEOUT_S = 1200
MEMORY_MIB = 4096
DISK_BYTES = 8 << 30

# Those of the tests' own builds: what is compiled with others is compiled again.
GO = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}

# By parts of their names.
SANDBOX_LEFT_OUT: dict[str, str] = {}

# Programs of crates/monitor.
MONITOR = ("uncia_monitor", "groups", "events")
# Of the worker's unit tests: those that make groups, or read what they count.
WORKER = ("sandbox::",)

# They switch controllers of the whole machine.
ALONE = ("tests/platforms/test_cpu_groups_v2.py", "tests/bandwidth/test_limits.py")
# Those in which groups decide, or measure: of the others the code is the same on either version.
PLATFORM = (
    "tests/doctor/test_monitors.py",
    "tests/lambda_api/test_memory_pressure.py",
    "tests/lambda_api/test_cpu_sharing.py",
    "tests/lambda_api/test_capacity.py",
    "tests/lambda_api/test_telemetry.py",
    "tests/lambda_api/test_cluster.py",
    "tests/lambda_api/test_cluster_streams.py",
    "tests/lambda_api/test_enforcement.py",
    "tests/lambda_api/test_metering.py",
    "tests/lambda_api/test_keep_alive_cpu.py",
    "tests/lambda_api/test_starts.py",
    "tests/lambda_api/test_stay_awake.py",
    "tests/lambda_api/test_serving.py",
    "tests/lambda_api/test_state_folder.py",
    "tests/lambda_api/test_exhaustion.py",
    "tests/lambda_api/test_extensions.py",
    "tests/lambda_api/test_policies.py",
    "tests/lambda_api/test_languages.py",
    "tests/lambda_api/test_http_server.py",
    "tests/lambda_api/test_images.py",
    "tests/lambda_api/test_versions.py",
    "tests/experiment/test_http_servers.py",
    "tests/experiment/test_removal.py",
    "tests/experiment/test_run.py",
)
PYTHON_LEFT_OUT = {
    f"tests/lambda_api/test_metering.py::{name}": "it compares CPU time with getrusage to 1 % and"
    " 10 us, which an emulated processor does not keep"
    for name in ("test_cpu_time_agrees_with_getrusage", "test_of_a_thawed_instance_too")
}


@dataclass(frozen=True)
class Step:
    """One command in the guest.

    Attributes:
        name: of its log.
        command: with ``LOG`` for where its results go, in pytest's form.
    """

    name: str
    command: list[str]


@dataclass
class Result:
    """What came of a step.

    Attributes:
        passed: how many tests.
        failed: names of tests, or what else went wrong.
        skipped: reasons, by the names of tests.
    """

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--kernel", action="append", help="a series of Debian's, such as 6.1, or a vmlinuz"
    )
    parser.add_argument("--modules", type=Path, help="lib/modules/RELEASE, of a vmlinuz")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument(
        "--only",
        action="append",
        help="a step: cgroup, monitor, worker, sandbox, groups or platform; or a file of tests",
    )
    parser.add_argument("-k", dest="words", help="only tests with this in their names")
    parser.add_argument("--dev", action="store_true", help="programs built without optimization")
    parser.add_argument("--timeout", type=float, default=7200, help="s, of each kernel")
    parser.add_argument("--out", type=Path, help="where logs stay")
    given = parser.parse_args()
    try:
        programs = built(given.dev)
        steps = all_steps(given.words, given.only)
        kernels = given.kernel or SERIES
        guests = [machine(kernel, given.modules, given.cpus) for kernel in kernels]
        with (
            tempfile.TemporaryDirectory(prefix="uncia-guest-out-") as folder,
            ThreadPoolExecutor(len(guests)) as pool,
        ):
            outs = [(given.out or Path(folder)) / Path(kernel).name for kernel in kernels]
            cache = compiled_go(Path(folder))
            failures = [
                pool.submit(run, *guest, steps, programs, cache, given.timeout)
                for guest in zip(guests, kernels, outs, strict=True)
            ]
            return int(any(failure.result() for failure in failures))
    except GuestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {error.cmd[0]} failed with status {error.returncode}", file=sys.stderr)
        return 2


def machine(kernel: str, modules: Path | None, cpus: int) -> Guest:
    """The guest with a kernel, and what it takes fetched.

    Raises:
        GuestError: something cannot be fetched.
    """
    packages = Packages(KERNELS)
    if modules is None:
        path, modules = packages.kernel(kernel)
    else:
        path = Path(kernel)
    guest = Guest(path, modules, cgroups=2, cpus=cpus, memory=MEMORY_MIB, disk=DISK_BYTES)
    tools = []
    if guest.emulator_version() < QEMU_OF_SEVERAL_CPUS:
        tools.append(packages.program(QEMU, "qemu-system-x86", backport=True))
    if guest.program("busybox") is None:
        tools.append(packages.program("busybox", "busybox-static"))
    guest = replace(guest, tools=tuple(tools))
    guest.check()
    return guest


def built(dev: bool) -> dict[str, Path]:
    """The programs of the tests, and the engine, built: by the name of what they test."""
    profile = [] if dev else ["--release"]
    command = ["cargo", "test", *profile, "--locked", "--no-run", "--message-format=json"]
    built = subprocess.run(
        [*command, *(f"--package=uncia-{name}" for name in ("cgroup", "monitor", "worker"))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    programs = {
        message["target"]["name"]: Path(message["executable"])
        for message in messages
        if message.get("executable") and message["profile"]["test"]
    }
    engine = ["cargo", "build", *profile, "--locked", "--package=uncia-engine"]
    subprocess.run(engine, cwd=ROOT, check=True)
    programs["engine"] = ROOT / "target" / ("debug" if dev else "release") / "uncia-engine"
    return programs


def compiled_go(folder: Path) -> Path | None:
    """Go's own packages, compiled here, which takes an emulated machine ten minutes;
    None without Go.
    """
    if shutil.which("go") is None:
        return None
    cache = folder / "go"
    environment = {**os.environ, "GOCACHE": str(cache), **GO}
    for flags in ([], ["-trimpath"]):
        command = ["go", "build", *flags, "std"]
        subprocess.run(command, cwd=folder, env=environment, check=True)
    return cache


def all_steps(words: str | None, only: list[str] | None) -> list[Step]:
    """What the guest does, one after the other, whatever came of those before."""
    left_out = [word for part in SANDBOX_LEFT_OUT for word in ("--skip", part)]
    pytest = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    pytest += [f"--timeout={TEST_TIMEOUT_S}"]
    pytest += ["--junitxml=LOG.xml", *(f"--deselect={name}" for name in PYTHON_LEFT_OUT)]
    pytest += ["-k", words] if words else []
    part = [words] if words else []
    files = [name for name in only or [] if name.endswith(".py")]
    if files:
        return [Step("files", [*pytest, "--numprocesses=2", "--dist=worksteal", *files])]
    steps = [
        Step("cgroup", ["/out/programs/uncia_cgroup", *part]),
        *(Step(f"monitor-{name}", [f"/out/programs/{name}", *part]) for name in MONITOR),
        Step("worker", ["/out/programs/uncia_worker", *(part or WORKER)]),
        Step("sandbox", ["/out/programs/sandbox", "--test-threads=1", *left_out, *part]),
        Step("groups", [*pytest, *ALONE]),
        Step("platform", [*pytest, "--numprocesses=2", "--dist=worksteal", *PLATFORM]),
    ]
    return [step for step in steps if only is None or step.name.split("-")[0] in only]


def run(
    guest: Guest,
    kernel: str,
    out: Path,
    steps: list[Step],
    programs: dict[str, Path],
    cache: Path | None,
    timeout: float,
) -> bool:
    """Whether something failed, which is printed with all that was skipped."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "programs").mkdir(parents=True)
    for name, program in programs.items():
        link(program, out / "programs" / name)
    if cache is not None:
        shutil.copytree(cache, out / "go")
    (out / "steps").write_text(script(steps))
    began = time.monotonic()
    try:
        with (out / "console.log").open("w") as console:
            guest.run(["bash", "/out/steps"], out, timeout, console)
        ended = True
    except GuestError as error:
        print(f"error: {error}", file=sys.stderr)
        ended = False
    minutes = (time.monotonic() - began) / 60
    print(f"\nLinux {kernel}, version 2 of control groups, {minutes:.0f} minutes")
    failed = not ended
    for step in steps:
        result = read(step, out)
        failed = failed or bool(result.failed)
        counts = f"{len(result.failed)} failed, {len(result.skipped)} skipped"
        print(f"{step.name}: {result.passed} passed, {counts}")
        for name in result.failed:
            print(f"  FAILED {name}")
        for name, reason in sorted(result.skipped.items()):
            print(f"  skipped {name}: {reason}")
    for name, reason in (SANDBOX_LEFT_OUT | PYTHON_LEFT_OUT).items():
        print(f"  left out {name}: {reason}")
    return failed


def link(program: Path, to: Path) -> None:
    """Keeps a program as it is: a build meanwhile would put another in its place."""
    try:
        to.hardlink_to(program)
    except OSError:
        shutil.copy(program, to)


def script(steps: list[Step]) -> str:
    """What bash does in the guest."""
    lines = [
        "set -o pipefail",
        "export RUST_BACKTRACE=0",
        # No overlay, which could not be below another; nor memory, which would be the platform's.
        "chmod 1777 /scratch",
        "export HOME=/scratch/home TMPDIR=/scratch",
        "mkdir -p $HOME",
        f"export PATH={shlex.quote(os.environ['PATH'])}",
        f"export PYTHONPATH={shlex.quote(str(ROOT / 'python'))}",
        f"export UNCIA_TEST_TIME_FACTOR={TIME_FACTOR}",
        "export UNCIA_ENGINE=/out/programs/engine",
        "export GOCACHE=/out/go",
        f"cd {shlex.quote(str(ROOT))}",
        "uname -r",
    ]
    for step in steps:
        log = f"/out/{step.name}"
        command = shlex.join(step.command).replace("LOG", log)
        lines.append(f"echo '+ {step.name}'")
        lines.append(f"{command} 2>&1 | tee {log}.log; echo $? > {log}.status")
    return "\n".join(lines) + "\n"


def read(step: Step, out: Path) -> Result:
    """What a step came to, from its log."""
    result = Result()
    log = out / f"{step.name}.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    results = out / f"{step.name}.xml"
    if results.exists():
        add_cases(results, result)
    for name, reason in re.findall(r"^(\w+) is not run: (.*)$", text, re.MULTILINE):
        result.skipped[name] = reason
    # What a test prints stands between its name and what came of it.
    begun = re.findall(r"^test (\S+)\s+\.\.\. ", text, re.MULTILINE)
    failed = re.findall(r"^---- (\S+?)(?: stdout)? ----$", text, re.MULTILINE)
    result.failed += dict.fromkeys(failed)
    result.passed += len([name for name in begun if name not in {*failed, *result.skipped}])
    status = out / f"{step.name}.status"
    if not status.exists():
        result.failed.append("the guest ended before this did")
    elif status.read_text().strip() != "0" and not result.failed:
        result.failed.append(f"status {status.read_text().strip()}: see {log}")
    return result


def add_cases(path: Path, result: Result) -> None:
    """Adds the cases of a file in the form of JUnit."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if skipped is not None:
            result.skipped[name] = skipped.get("message") or ""
        elif case.find("failure") is not None or case.find("error") is not None:
            result.failed.append(name)
        else:
            result.passed += 1


if __name__ == "__main__":
    sys.exit(main())
