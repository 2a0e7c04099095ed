"""The store beside functions: reached by those that name it, and nothing of it left."""

import os
import signal
import socketserver
import threading
import time
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pyarrow.parquet
import pytest
from patience import scaled
from run_helpers import Uncia, description, function

from uncia.errors import UnciaError
from uncia.experiment import files
from uncia.platforms import Context, processes
from uncia.platforms.journal import Journal
from uncia.services import store, versitygw

from .conftest import ROUND_TRIP, names_its_place

FILE = """\
name: stored
seed: 1
platform: {{kind: embedded}}
services: {{store: {options}}}
functions:
  f: {{source: ./f, reach: [store]}}
experiments:
  only:
    function: f
    arrivals: {{kind: constant, rate: 5/s, duration: {duration}}}
"""


def written(folder: Path, options: str = "{}", duration: str = "2s") -> Path:
    function(folder / "f", ROUND_TRIP)
    path = folder / "stored.yaml"
    path.write_text(FILE.format(options=options, duration=duration))
    return path


def servers(folder: Path) -> list[int]:
    """The processes whose command line names a folder."""
    pids: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if b"versitygw" in line and str(folder).encode() in line:
            pids.append(int(entry.name))
    return pids


@pytest.mark.usefixtures("built")
def test_a_run_has_a_store_of_its_own(tmp_path: Path, uncia: Uncia, state_home: Path) -> None:
    out, err = (process := uncia("run", written(tmp_path), "--out", tmp_path / "out")).communicate()
    assert process.returncode == 0, out + err
    assert "UserWarning" not in err
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "invocations.parquet")
    assert rows["outcome"].to_pylist() == ["ok"] * 10
    for services in rows["services"].to_pylist():
        # What was put and got, and HTTP's heads beside it.
        ((service, sent, received),) = [tuple(it.values()) for it in services]
        assert service == "store"
        assert 200_000 < sent < 204_000
        assert 200_000 < received < 204_000
    assert "Services" in (tmp_path / "out" / "report.html").read_text()
    assert "not removed" not in (tmp_path / "out" / "run.yaml").read_text()
    assert servers(state_home) == []
    assert not list((state_home / "services").iterdir())
    assert not list((state_home / "journal").iterdir())


@pytest.mark.usefixtures("built")
def test_a_killed_run_leaves_a_store_that_clean_removes(
    tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    process = uncia("run", written(tmp_path, duration="10min"), "--out", tmp_path / "out")
    deadline = time.monotonic() + 120
    while not servers(state_home) and time.monotonic() < deadline:
        time.sleep(0.1)
    (server,) = servers(state_home)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    out, err = (cleaning := uncia("clean")).communicate()
    assert cleaning.returncode == 0, out + err
    assert processes.identify(server) is None
    assert not list((state_home / "services").iterdir())
    assert not list((state_home / "journal").iterdir())


@pytest.mark.usefixtures("built")
def test_of_a_bucket_that_exists_only_the_runs_own_objects_are_removed(
    tmp_path: Path, uncia: Uncia, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = versitygw.Server(tmp_path / "served")
    try:
        api = store.client(server.address, server.access_key, server.secret_key)
        api.create_bucket(Bucket="others")
        api.put_object(Bucket="others", Key="kept", Body=b"1")
        monkeypatch.setenv("STORE_KEY", server.access_key)
        monkeypatch.setenv("STORE_SECRET", server.secret_key)
        options = (
            f"{{address: 'http://{server.address}', bucket: others,"
            " access_key_variable: STORE_KEY, secret_key_variable: STORE_SECRET}"
        )
        out, err = (
            process := uncia("run", written(tmp_path, options), "--out", tmp_path / "out")
        ).communicate()
        assert process.returncode == 0, out + err
        listed = api.list_objects_v2(Bucket="others")["Contents"]
        assert [item["Key"] for item in listed] == ["kept"]
        text = (tmp_path / "out" / "run.yaml").read_text()
        assert server.secret_key not in text
    finally:
        server.stop()
    assert not list((state_home / "journal").iterdir())


@pytest.mark.usefixtures("built")
def test_a_store_that_is_killed_meanwhile_is_in_the_runs_warnings(
    tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    process = uncia("run", written(tmp_path, duration="8s"), "--out", tmp_path / "out")
    deadline = time.monotonic() + scaled(60)
    part = tmp_path / "out"
    while not list(part.glob("invocations.*.arrows")) and time.monotonic() < deadline:
        time.sleep(0.1)
    (server,) = servers(state_home)
    os.kill(server, signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 1, out + err
    (warning,) = (it for it in description(part)["warnings"] if "service store" in it)
    assert "ended by signal 9 while the run went on" in warning
    outcomes = pyarrow.parquet.read_table(part / "invocations.parquet")["outcome"].to_pylist()
    assert set(outcomes) != {"ok"}
    assert not list((state_home / "journal").iterdir())


@pytest.mark.usefixtures("built")
def test_more_objects_than_one_request_removes(tmp_path: Path) -> None:
    server = versitygw.Server(tmp_path / "served")
    try:
        api = store.client(server.address, server.access_key, server.secret_key)
        api.create_bucket(Bucket="own")
        for number in range(1_001):
            api.put_object(Bucket="own", Key=f"{number}", Body=b"")
        store.empty(api, "own", "", is_own=True)
        assert api.list_buckets()["Buckets"] == []
        # Again: it is gone already.
        store.empty(api, "own", "", is_own=True)
    finally:
        server.stop()


@pytest.mark.usefixtures("built")
def test_uploads_that_were_never_completed_are_removed(tmp_path: Path) -> None:
    server = versitygw.Server(tmp_path / "served")
    try:
        api = store.client(server.address, server.access_key, server.secret_key)
        api.create_bucket(Bucket="others")
        for key in ("run-1/part", "run-2/part"):
            upload = api.create_multipart_upload(Bucket="others", Key=key)["UploadId"]
            api.upload_part(Bucket="others", Key=key, UploadId=upload, PartNumber=1, Body=b"1")
        store.empty(api, "others", "run-1/", is_own=False)
        left = api.list_multipart_uploads(Bucket="others")["Uploads"]
        assert [it["Key"] for it in left] == ["run-2/part"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("services: {store: {}}", "", "functions.f.reach: there is no service 'store'"),
        ("{store: {}}", "{shop: {}}", "services.shop"),
        ("reach: [store]", "reach: [shop]", "'shop'"),
        ("{store: {}}", "{store: {bucket: b}}", "a bucket that exists is at an address"),
        ("{store: {}}", "{store: {address: 'https://x'}}", "must begin with http://"),
        ("{store: {}}", "{store: {address: 'http://h:99999'}}", "is no address of a store"),
        ("{store: {}}", "{store: {address: 'http://h/path'}}", "is no address of a store"),
        ("{store: {}}", "{store: {address: 'http://[::1]:1'}}", "is no address of a store"),
    ],
)
def test_mistakes_are_named_with_their_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    names_its_place(written(tmp_path), old, new, message)


def test_platforms_without_services_refuse_them(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(
        "name: plain\nplatform: {kind: http}\nservices: {store: {}}\n"
        "functions: {f: {url: 'http://127.0.0.1:1/'}}\n"
        "experiments: {e: {function: f, arrivals: {kind: burst, sizes: [1]}}}\n"
    )
    with pytest.raises(UnciaError, match="reach no services"):
        files.load(path)


def test_a_store_without_its_key(tmp_path: Path, state_home: Path) -> None:
    del state_home
    assert "NO_SUCH_KEY" not in os.environ
    journal = Journal("r", tmp_path)
    options = store.Options(address="http://127.0.0.1:1", access_key_variable="NO_SUCH_KEY")
    with pytest.raises(UnciaError, match="NO_SUCH_KEY is not set"):
        store.connect(options, Context("r", journal)).start()
    assert journal.outstanding == []
    journal.close()


@pytest.mark.parametrize("bucket", [None, "others"])
def test_a_store_that_refuses_leaves_nothing_to_clean(
    tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch, bucket: str | None
) -> None:
    del state_home
    monkeypatch.setenv("STORE_KEY", "k")
    with socketserver.TCPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        refusing = server.server_address[1]
        # The other is a port that nobody listens at.
        for port in (refusing, 1):
            journal = Journal("r", tmp_path / f"{port}")
            options = store.Options(
                address=f"http://127.0.0.1:{port}",
                bucket=bucket,
                access_key_variable="STORE_KEY",
                secret_key_variable="STORE_KEY",
            )
            lines: list[str] = []
            service = store.connect(options, Context("r", journal, log=lines.append))
            with pytest.raises(UnciaError, match="has no bucket"):
                service.start()
            service.close()
            assert (journal.outstanding, lines) == ([], [])
            journal.close()
        server.shutdown()


def test_names_of_buckets() -> None:
    name = store.connect(store.Options(), Context("My_Run-" + "x" * 80 + "-3fa9c1", None)).bucket  # type: ignore[arg-type]
    assert name.endswith("-3fa9c1")
    assert len(name) <= 63
    assert name == name.lower()
