"""Profiles of providers: what ships, files of users, and a platform that serves like one."""

import concurrent.futures
import io
import json
import signal
import subprocess
import time
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uncia import functions, profiles, yamlio
from uncia.errors import UnciaError
from uncia.platforms import Context, boto, embedded
from uncia.platforms.embedded import Options
from uncia.platforms.journal import Journal
from uncia.profiles.cpu import LAMBDA, PLATFORMS, sold
from uncia.providers import LAMBDA_MB, LAMBDA_MIN_MB
from uncia.tariffs import catalogue

Uncia = Callable[..., "subprocess.Popen[str]"]
Command = Callable[..., tuple[int, str, str]]

MINE = """\
id: mine
provider: A
product: B
as_of: 2026-01-31
sources:
  us: {citation: "measured by ourselves"}
settings:
  keep_alive: {value: 7s, source: us}
  binding: {value: late, source: us}
policies:
  order: {value: shortest-job-first, source: us}
tariff: {x86_64: azure-consumption, aarch64: azure-consumption}
unsupported:
  - {what: "it has no moon", source: us}
"""


def options(text: str) -> Options:
    return yamlio.validate(Options, yamlio.load(text))


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_that_ships_is_whole(name: str) -> None:
    profile = profiles.get(name)
    assert profile.id == name
    # OpenWhisk is a program, which sells nothing.
    assert (profile.tariff is None) == (name == "openwhisk")
    for tariff in profile.tariff.model_dump().values() if profile.tariff else ():
        assert not catalogue.get(tariff).by_instance
    assert profile.warnings(), "something of a provider is always missing"
    text = yamlio.load(Path(profiles.__file__).with_name(f"{name}.yaml")).data
    cited = {source for _, source in profiles.citations(text)}
    assert cited == set(profile.sources), "each source is cited"
    config = options(f"{{kind: embedded, like: {name}}}").engine()
    assert config["stop_grace_ms"] <= 1 if "stop_grace_ms" in config else name == "ibm"


def test_the_profiles_are_the_providers() -> None:
    assert profiles.names() == ("aws", "azure", "cloudflare", "gcp", "ibm", "openwhisk")
    # Table 3 of the paper.
    table = {name: (it.period_ns // 1_000_000, it.hz) for name, it in PLATFORMS.items()}
    assert table == {"aws": (20, 250), "gcp": (100, 1000), "ibm": (10, 250)}
    # The sizes of Lambda's API are those of its profile.
    assert (LAMBDA.mb_per_vcpu, LAMBDA.min_size, LAMBDA.step) == (LAMBDA_MB, LAMBDA_MIN_MB, 1)


def test_what_is_given_beside_a_profile_counts(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    like = f"kind: embedded\nlike: {tmp_path / 'mine.yaml'}\n"
    config = options(like).engine()
    assert config["keep_alive_ms"] == 7_000
    assert (config["binding"], config["policies"]) == ("late", {"order": "shortest-job-first"})
    config = options(like + "keep_alive: 9s\npolicies: {order: first-come}").engine()
    assert (config["keep_alive_ms"], config["policies"]) == (9_000, {"order": "first-come"})
    # The setting `binding` and the policy are one choice, of which the engine takes one.
    config = options(like + "policies: {binding: early}").engine()
    assert "binding" not in config
    assert config["policies"] == {"order": "shortest-job-first", "binding": "early"}


@pytest.mark.parametrize(
    ("was", "wrong", "line", "message"),
    [
        ("keep_alive:", "keep_aliv:", 8, "did you mean keep_alive?"),
        ("value: 7s", "value: 7", 8, "settings.keep_alive.value"),
        ("value: 7s", "value: 7us", 8, "whole number of milliseconds"),
        ("value: late", "value: soon", 9, "settings.binding.value"),
        ("{value: 7s, source: us}", "7s", 8, "settings.keep_alive"),
        ("value: 7s, source: us", "value: 7s, source: them", 8, "'them' is not listed"),
        ("order:", "luck:", 11, "policies.luck"),
        ("shortest-job-first", "longest", 11, "policies.order.value"),
        ("2026-01-31", "2026-02-31", 4, "is not a date"),
        ("settings:", "cpu: {}\nsettings:", 7, "cpu.period"),
    ],
)
def test_a_wrong_profile_is_refused_with_line_and_key(
    tmp_path: Path, was: str, wrong: str, line: int, message: str
) -> None:
    assert was in MINE
    file = tmp_path / "mine.yaml"
    file.write_text(MINE.replace(was, wrong, 1))
    with pytest.raises(UnciaError) as error:
        profiles.find(str(file))
    assert f"{file}:{line}: " in str(error.value)
    assert message in str(error.value)


def test_the_platform_gives_as_much_cpu_with_memory_as_the_provider(tmp_path: Path) -> None:
    theirs = Path(profiles.__file__).with_name("aws.yaml").read_text()
    file = tmp_path / "mine.yaml"
    like = f"kind: embedded\nlike: {file}\n"
    file.write_text(theirs.replace("per_vcpu: {value: 1769MB", "per_vcpu: {value: 2GB"))
    assert options(like).engine()["memory_per_vcpu_bytes"] == 2 << 30
    assert options(like + "memory_per_vcpu: 1GB\n").engine()["memory_per_vcpu_bytes"] == 1 << 30
    twice = "settings:\n  memory_per_vcpu: {value: 1GB, source: memory}"
    file.write_text(theirs.replace("settings:", twice, 1))
    with pytest.raises(UnciaError, match=r"memory_per_vcpu is cpu\.by_memory\.per_vcpu"):
        profiles.find(str(file))


def test_an_unknown_profile_is_refused_where_it_is_named(command: Command, tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match=r"<text>:2: like: there is no profile 'gpc'"):
        options("kind: embedded\nlike: gpc")
    for arguments in (["serve"], ["cpu", "duration"]):
        code, _, errors = command(*arguments, "--like", tmp_path / "none.yaml")
        assert code == 2
        assert "none.yaml: there is no such file" in errors
        code, _, errors = command(*arguments, "--like", "gpc")
        assert code == 2
        assert "Did you mean gcp?" in errors


def test_the_analyses_of_cpu_read_the_same_files(command: Command, tmp_path: Path) -> None:
    theirs = Path(profiles.__file__).with_name("gcp.yaml").read_text()
    file = tmp_path / "mine.yaml"
    file.write_text(theirs.replace("period: {value: 100ms", "period: {value: 50ms"))
    assert sold(profiles.find(str(file))).period_ns == 50_000_000
    code, printed, _ = command("cpu", "duration", "--like", file, "--vcpu", "0.5", "--json")
    assert code == 0
    assert {row["period_ns"] for row in json.loads(printed)["durations"]} == {"50000000"}
    code, _, errors = command("cpu", "duration", "--like", "azure")
    assert code == 2
    assert "azure has no cpu" in errors


def test_the_schema_of_a_profile_has_every_setting(command: Command) -> None:
    code, printed, _ = command("schema", "profile")
    assert code == 0
    schema = json.loads(printed)
    assert set(profiles.Profile.model_fields) == set(schema["properties"])
    assert "target_utilization" in schema["$defs"]["ProfileSettings"]["properties"]


def health(address: str) -> Any:
    with urllib.request.urlopen(f"http://{address}/uncia/v1/health") as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("name", "paused"),
    [("aws", "frozen"), ("gcp", "scaled_down"), ("azure", None), ("openwhisk", "frozen")],
)
def test_what_runs_while_idle_is_the_providers(
    uncia: Uncia, tmp_path: Path, name: str, paused: str | None
) -> None:
    process = uncia(
        *("serve", "--json", "--listen", "127.0.0.1:0", "--state", tmp_path / "s"),
        *("--like", name, "--pause-after", "0ms"),
    )
    assert process.stdout is not None
    try:
        address = json.loads(process.stdout.readline())["address"]
        assert health(address)["policies"].items() >= profiles.get(name).policy_names().items()
        client = boto.client(address)
        package = functions.package("hello", "python")
        client.create_function(
            FunctionName="hello",
            Runtime="python3.11",
            Role="arn:aws:iam::000000000000:role/any",
            Handler=package.handler,
            MemorySize=512,
            Code={"ZipFile": package.read_bytes()},
        )
        assert "FunctionError" not in client.invoke(FunctionName="hello")
        deadline = time.monotonic() + 60
        while not (counts := health(address)["instances"])[paused or "idle"]:
            assert time.monotonic() < deadline, counts
            time.sleep(0.02)
        assert sum(counts[kind] for kind in ("frozen", "scaled_down")) == (paused is not None)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    for warning in profiles.get(name).warnings():
        assert f"warning: {warning}\n" in errors


# Answers to /meet come only when two of them have been asked for.
MEETING = """\
import http.server, os, threading

meeting = threading.Barrier(2)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        meeting.wait(50)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def _zip(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.py", text)
    return buffer.getvalue()


def test_servers_serve_several_requests_at_a_time_as_on_the_provider(
    uncia: Uncia, tmp_path: Path
) -> None:
    process = uncia(
        *("serve", "--json", "--listen", "127.0.0.1:0", "--state", tmp_path / "s"),
        *("--like", "gcp"),
    )
    assert process.stdout is not None
    try:
        client = boto.client(json.loads(process.stdout.readline())["address"])

        def create(name: str, handler: str, source: str, **tags: str) -> dict[str, str]:
            created = client.create_function(
                FunctionName=name,
                Runtime="python3.11",
                Role="arn:aws:iam::000000000000:role/any",
                Handler=handler,
                Timeout=60,
                Code={"ZipFile": _zip(main=source)},
                Tags={f"uncia:{key}": value for key, value in tags.items()},
            )
            headers: dict[str, str] = created["ResponseMetadata"]["HTTPHeaders"]
            return headers

        # Nothing but the name of its file says that it is a server.
        headers = create("server", "main.py", MEETING)
        assert headers["x-uncia-architecture"] == "http"
        assert "x-uncia-warning" not in headers
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda _: client.invoke(FunctionName="server"), range(2)))
        instances = {it["ResponseMetadata"]["HTTPHeaders"]["x-uncia-instance"] for it in answers}
        assert len(instances) == 1

        handler = "def handler(event, context):\n    return event\n"
        headers = create("handler", "main.handler", handler)
        assert headers["x-uncia-architecture"] == "polling"
        assert 'its handler "main.handler" names no HTTP server' in headers["x-uncia-warning"]
        assert "FunctionError" not in client.invoke(FunctionName="handler")
        # One that says so itself is no surprise, and a limit of its own counts.
        assert "x-uncia-warning" not in create(
            "polls", "main.handler", handler, architecture="polling"
        )
        create("few", "main.py", MEETING, concurrency="3")
        refused = client.exceptions.InvalidParameterValueException
        with pytest.raises(refused, match="uncia:concurrency must be 1"):
            create("wrong", "main.handler", handler, concurrency="3")
        changed = client.update_function_configuration(
            FunctionName="server", Handler="main.meeting"
        )
        assert changed["ResponseMetadata"]["HTTPHeaders"]["x-uncia-architecture"] == "polling"
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    warned = [line for line in errors.splitlines() if "names no HTTP server" in line]
    assert len(warned) == 2


@pytest.mark.usefixtures("state_home")
def test_a_run_says_what_is_not_as_on_the_provider(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    like = options(f"kind: embedded\nlike: {tmp_path / 'mine.yaml'}")
    opened = Journal("run-like", None)
    platform = embedded.connect(like, Context("run-like", opened))
    try:
        assert "not as on mine: it has no moon" in platform.start()
    finally:
        platform.close()
        opened.close()
