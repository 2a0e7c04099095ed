"""Payloads between functions: by the store, whole, with nothing left of them."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from run_helpers import Uncia

from uncia.errors import UnciaError
from uncia.functions import golang
from uncia.services import store, versitygw

from .conftest import plan_of

FILE = """\
name: transfers
seed: 1
platform: {{kind: embedded}}
services: {{store: {options}}}
functions:
  f: {{source: relay, runtime: {runtime}, reach: [store], memory: 512MB}}
chains:
  inline:
    stages:
      give: {{function: f, parameters: {{size: 100KB, by: size}}}}
      take: {{function: f, parameters: {{payload: "{{{{answer.payload}}}}", size: 0B}}}}
  stored:
    stages:
      give: {{function: f, parameters: {{size: {size}, by: size}}}}
      pass: {{function: f, parameters: {{payload: "{{{{answer.payload}}}}", size: 1KB, by: store}}}}
      take: {{function: f, parameters: {{payload: "{{{{answer.payload}}}}", size: 0B}}}}
experiments:
  inline: {{chain: inline, kind: nested, closed: {{clients: 1, requests: 3}}}}
  stored: {{chain: stored, kind: nested, closed: {{clients: 1, requests: 3}}}}
"""


def runtimes() -> list[object]:
    """Go's library takes a minute to compile, and npm fetches: of whole suites' tests alone."""
    whole = os.environ.get("UNCIA_TEST_SUITES") is not None
    only_whole = pytest.mark.skipif(not whole, reason="make test-suites has it")
    no_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
    go = pytest.param("go", marks=only_whole)
    return ["python", go, pytest.param("node", marks=[only_whole, no_npm])]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("runtime", runtimes())
def test_payloads_pass_inline_and_by_the_store(
    runtime: str,
    tmp_path: Path,
    uncia: Uncia,
    state_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if runtime == "go":
        golang.find()
    server = versitygw.Server(tmp_path / "served")
    try:
        api = store.client(server.address, server.access_key, server.secret_key)
        api.create_bucket(Bucket="others")
        monkeypatch.setenv("STORE_KEY", server.access_key)
        monkeypatch.setenv("STORE_SECRET", server.secret_key)
        options = (
            f"{{address: 'http://{server.address}', bucket: others,"
            " access_key_variable: STORE_KEY, secret_key_variable: STORE_SECRET}"
        )
        path = tmp_path / "transfers.yaml"
        # In three parts.
        path.write_text(FILE.format(options=options, runtime=runtime, size="40MB"))
        out, err = (process := uncia("run", path, "--out", tmp_path / "out")).communicate()
        assert process.returncode == 0, out + err
        assert "Contents" not in api.list_objects_v2(Bucket="others")
        assert not api.list_multipart_uploads(Bucket="others").get("Uploads")
    finally:
        server.stop()
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "invocations.parquet")
    assert rows["outcome"].to_pylist() == ["ok"] * rows.num_rows
    experiments = json.loads((tmp_path / "out" / "summary.json").read_text())["experiments"]
    found = {
        stage["stage"]: stage
        for it in ("inline", "stored")
        for stage in experiments[it]["hops"][0]["stages"]
    }
    inline = experiments["inline"]["hops"][0]["stages"][0]
    assert inline["payload_bytes"] == 102_400
    assert found["pass"]["payload_bytes"] == 40 << 20
    assert found["take"]["payload_bytes"] == 1_024
    for stage in (inline, *found.values()):
        expected = stage["payload_bytes"] * 8e3 / (stage["transfer_ms"]["p50"] * 1e6)
        assert stage["bandwidth_mbps"] == pytest.approx(expected)
        assert stage["transfer_bound_ms"]["max"] == 0
    assert "Mb/s" in (tmp_path / "out" / "report.html").read_text()
    assert not list((state_home / "journal").iterdir())


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [
        (", reach: [store]", "", True),
        (", by: store", "", False),
    ],
)
def test_a_relay_without_the_store_is_refused_before_the_run(
    tmp_path: Path, old: str, new: str, is_refused: bool
) -> None:
    text = FILE.format(options="{}", runtime="python", size="1MB").replace(old, new)
    path = tmp_path / "transfers.yaml"
    # The service is there, for another function.
    text = text.replace("functions:\n", "functions:\n  g: {source: hello, reach: [store]}\n")
    path.write_text(text)
    if not is_refused:
        plan_of(path)
        return
    with pytest.raises(UnciaError, match=r"functions\.f: it hands payloads on by the store"):
        plan_of(path)
