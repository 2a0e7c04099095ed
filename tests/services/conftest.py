"""What tests of services share: a function that puts and gets an object, without any library."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from uncia.errors import UnciaError
from uncia.experiment import files
from uncia.experiment.plan import Plan
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.platforms import ServiceEndpoint
from uncia.services import documents, redis_server, versitygw

sys.path.insert(0, str(Path(__file__).parent.parent / "experiment"))

# Signature Version 4 by the specification, with the standard library.
ROUND_TRIP = """\
import hashlib, hmac, http.client, os, time

def request(method, path, body=b""):
    host = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\\n" for name in sorted(headers))
    canonical = "\\n".join([method, path, "", lines, names, digest])
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    text = "\\n".join(["AWS4-HMAC-SHA256", stamp, scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names},"
                                f" Signature={signature}")
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300:
        raise OSError(f"{method} {path}: {answer.status} {content[:300]}")
    return content

def handler(event, context):
    key = os.environ["UNCIA_STORE_PREFIX"] + context.aws_request_id
    path = f"/{os.environ['UNCIA_STORE_BUCKET']}/{key}"
    sent = os.urandom(200_000)
    request("PUT", path, sent)
    assert request("GET", path) == sent
    return {"key": key}
"""


@pytest.fixture
def built() -> None:
    """Skips a test where there is no server of objects."""
    try:
        versitygw.find()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")


def plan_of(path: Path) -> Plan:
    """What an experiment file comes to, before anything runs."""
    file, document = files.load(path)
    return plan(file, Sources(document, path.parent))


def names_its_place(path: Path, old: str, new: str, message: str) -> None:
    """Check what is said of an experiment file with a mistake in it, and that its name is in it."""
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UnciaError) as error:
        files.load(path)
    assert message in str(error.value)
    assert path.name in str(error.value)


@pytest.fixture
def redis(request: pytest.FixtureRequest) -> None:
    """Skips a test of a real server of documents where there is none."""
    if "mistakes" in request.node.name:
        return
    try:
        redis_server.PROGRAM.find()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture
def endpoint(redis: None, tmp_path: Path) -> Iterator[ServiceEndpoint]:
    """The endpoint of a server of documents of its own."""
    made = redis_server.Server(tmp_path / "served", 64 << 20)
    try:
        variables = {documents.PASSWORD: made.password, documents.PREFIX: "p:"}
        yield documents.prepare(made.address, variables)
    finally:
        made.stop()
