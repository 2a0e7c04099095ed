"""The store: objects by S3's API, in a bucket of the run's own or below a prefix.

Without an address, a server is started for the run (`uncia.services.versitygw`), which nobody else
has the keys of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_validator

from uncia.errors import RunFailedError, UnciaError
from uncia.forms import Form, Url
from uncia.platforms import Context, ServiceEndpoint
from uncia.platforms.journal import Resource, state_home
from uncia.services import listening, versitygw

BUCKET: Final = "UNCIA_STORE_BUCKET"
"""The variable with the run's bucket."""

PREFIX: Final = "UNCIA_STORE_PREFIX"
"""The variable with what the keys of the run's objects begin with."""

# Of services' resources in the journal, as `uncia.services.PLATFORM` says, which imports this.
_PLATFORM: Final = "services"
_SERVICE: Final = {"service": "store"}
_REGION: Final = "us-east-1"
_HTTP_PORT: Final = 80
_LAST_PORT: Final = 65_535
_LONGEST_BUCKET: Final = 63
_ADDRESS: Final = re.compile(
    r"http://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::([1-9]\d{0,4}))?/?"
)
_CONNECT_TIMEOUT_S: Final = 5
_READ_TIMEOUT_S: Final = 30
# What DeleteObjects takes at once.
_BATCH: Final = 1_000


class Options(Form):
    """Where the store is; a server of the run's own if nothing is said."""

    address: Url | None = Field(
        None, description="Of a store that exists, such as http://host:9000"
    )
    bucket: str | None = Field(
        None,
        description="One that exists there; only what the run put below its own prefix is removed."
        " Default: a bucket of the run's own",
    )
    access_key_variable: str = Field(
        "AWS_ACCESS_KEY_ID", description="The variable of this process that has the key's id"
    )
    secret_key_variable: str = Field(
        "AWS_SECRET_ACCESS_KEY", description="The variable of this process that has the key"
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.address is None and self.bucket is not None:
            raise ValueError("a bucket that exists is at an address; without one, leave it out")
        if self.address is not None and not self.address.startswith("http://"):
            raise ValueError(
                "the store's address must begin with http://: functions reach it by another name,"
                " for which no certificate is valid"
            )
        if self.address is not None and not _is_address(self.address):
            raise ValueError(
                f"{self.address} is no address of a store: write http://HOST:PORT, without a path"
            )
        return self


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    return match is not None and int(match[2] or _HTTP_PORT) <= _LAST_PORT


def client(address: str, access_key: str, secret_key: str) -> Any:
    """Return a boto3 client of the S3 API at ``address`` (``HOST:PORT``)."""
    import boto3.session
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=f"http://{address}",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=_REGION,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 3},
            proxies={},
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
        ),
    )


def put(endpoint: ServiceEndpoint, key: str, file: Path) -> tuple[str, str]:
    """Put a file into a run's store; returns bucket and key.

    Args:
        endpoint: of the store, once it is started.
        key: below the run's prefix.
        file: what it gets; streamed, in parts if it is large.

    Raises:
        RunFailedError: the store does not take it.
    """
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    variables = endpoint.environment
    bucket = variables[BUCKET]
    key = variables[PREFIX] + key
    api = client(
        endpoint.address, variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
    )
    try:
        api.upload_file(str(file), bucket, key)
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise RunFailedError(
            f"the store at {endpoint.address} does not take {file.name}: {error}"
        ) from error
    return bucket, key


class Store:
    """One run's store."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options: Final = options
        self._context: Final = context
        self._server: versitygw.Server | None = None
        self._api: Any = None
        self._made: list[Resource] = []
        self.bucket = options.bucket or _bucket_name(context.run)
        self.prefix = "" if options.bucket is None else f"{context.run}/"

    def start(self) -> ServiceEndpoint:
        if self._options.address is None:
            address, access_key, secret_key = self._serve()
        else:
            address, access_key, secret_key = _located(self._options)
        self._api = client(address, access_key, secret_key)
        if self._options.address is not None:
            detail = {**_SERVICE, "options": self._options.model_dump(), "prefix": self.prefix}
            self._journal(Resource(_PLATFORM, "bucket", self.bucket, detail))
        self._make_bucket(address)
        return ServiceEndpoint(
            address,
            {
                "AWS_ACCESS_KEY_ID": access_key,
                "AWS_SECRET_ACCESS_KEY": secret_key,
                "AWS_SESSION_TOKEN": "",
                BUCKET: self.bucket,
                PREFIX: self.prefix,
            },
        )

    def close(self) -> None:
        try:
            if self._server is not None:
                listening.tell(self._server.stop(), "store", self._context)
                self._server = None
            for resource in list(self._made):
                if resource.kind == "server":
                    if not _end_server(Path(resource.id), self._context.log):
                        continue
                elif self._api is not None:
                    empty(self._api, self.bucket, self.prefix, is_own=not self._options.bucket)
                self._context.journal.removed(resource)
                self._made.remove(resource)
        except UnciaError as error:
            # What is left stays in the journal.
            self._context.log(error.message)

    def _serve(self) -> tuple[str, str, str]:
        folder = state_home() / "services" / self._context.run
        versitygw.find()
        self._journal(Resource(_PLATFORM, "server", str(folder), _SERVICE))
        self._server = versitygw.Server(folder)
        return self._server.address, self._server.access_key, self._server.secret_key

    def _journal(self, resource: Resource) -> None:
        self._context.journal.created(resource)
        self._made.append(resource)

    def _make_bucket(self, address: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

        try:
            if self._options.bucket is None:
                self._api.create_bucket(Bucket=self.bucket)
            else:
                self._api.head_bucket(Bucket=self.bucket)
        except (BotoCoreError, ClientError) as error:
            # Refused, or never asked: there is nothing to remove, now or by `uncia clean`.
            if isinstance(error, ClientError | EndpointConnectionError):
                for resource in [item for item in self._made if item.kind == "bucket"]:
                    self._context.journal.removed(resource)
                    self._made.remove(resource)
            raise RunFailedError(
                f"the store at {address} has no bucket {self.bucket} for the run: {error}",
                hint="Check its address, the variables with the key, and what the key may do.",
            ) from error


def _bucket_name(run: str) -> str:
    """Name a run's own bucket: lower case, 63 characters at most, ending as the run's id does."""
    plain = re.sub(r"[^a-z0-9-]", "-", run.lower())
    return f"uncia-{plain[-(_LONGEST_BUCKET - len('uncia-')) :].strip('-')}"


def _located(options: Options) -> tuple[str, str, str]:
    """Return the address (``HOST:PORT``) and the keys of a store that exists.

    Raises:
        UnciaError: a variable is not set.
    """
    assert options.address is not None, "it was checked"
    keys: list[str] = []
    for name in (options.access_key_variable, options.secret_key_variable):
        value = os.environ.get(name)
        if not value:
            raise UnciaError(
                f"the store at {options.address} needs a key, and {name} is not set",
                hint="Set it, or name others: access_key_variable and secret_key_variable.",
            )
        keys.append(value)
    match = _ADDRESS.fullmatch(options.address)
    assert match is not None, "it was checked"
    return f"{match[1]}:{match[2] or _HTTP_PORT}", keys[0], keys[1]


def empty(api: Any, bucket: str, prefix: str, *, is_own: bool) -> None:
    """Remove all objects below a prefix, whole or not, and the bucket if it is the run's own.

    Raises:
        UnciaError: something is left.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        _abort_uploads(api, bucket, prefix)
        for keys in _batches(api, bucket, prefix):
            answer = api.delete_objects(
                Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
            if answer.get("Errors"):
                first = answer["Errors"][0]
                raise RunFailedError(
                    f"objects of the bucket {bucket} cannot be removed: {first.get('Message')}"
                )
        if is_own:
            api.delete_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "NoSuchBucket":
            raise RunFailedError(f"the bucket {bucket} cannot be removed: {error}") from error
    except BotoCoreError as error:
        raise RunFailedError(f"the bucket {bucket} cannot be removed: {error}") from error


def _abort_uploads(api: Any, bucket: str, prefix: str) -> None:
    """Remove the parts of objects below a prefix whose upload was never completed."""
    pages = api.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    # Listed before any is removed: the pages would shift.
    for upload in [item for page in pages for item in page.get("Uploads", ())]:
        if upload["Key"].startswith(prefix):
            api.abort_multipart_upload(
                Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )


def _batches(api: Any, bucket: str, prefix: str) -> Iterator[list[str]]:
    """Yield the keys below a prefix, as many at a time as can be removed at once."""
    while True:
        answer = api.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=_BATCH)
        keys = [item["Key"] for item in answer.get("Contents", ())]
        if not keys:
            return
        yield keys


def _end_server(folder: Path, log: Callable[[str], None]) -> bool:
    """End what serves a folder, and remove it; returns whether it is gone."""
    return listening.end(versitygw.data(folder), folder, "versitygw", "store", log)


def require() -> None:
    """Check that a server of a run's own can be started.

    Raises:
        UnciaError: there is none; its hint says what to install.
    """
    versitygw.find()


def connect(options: Options, context: Context) -> Store:
    """Return the store of one run, which is not started yet."""
    return Store(options, context)


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """End the servers of a crashed run, and remove their folders and the run's objects."""
    gone: list[Resource] = []
    for resource in resources:
        if resource.kind == "server":
            if _end_server(Path(resource.id), log):
                gone.append(resource)
        elif resource.kind == "bucket":
            prefix = str(resource.detail["prefix"])
            options = Options.model_validate(resource.detail["options"])
            api = client(*_located(options))
            empty(api, resource.id, prefix, is_own=options.bucket is None)
            gone.append(resource)
    return gone
