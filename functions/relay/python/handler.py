"""Takes a payload from its event or from the store, and hands the next one on.

As text a payload is five fields with blanks between: how it was handed on, when that began (Unix
time in ns), its bytes, their SHA-256, and the bytes in base64 or the key of an object.
"""

import hashlib
import os
import time
from binascii import a2b_base64, b2a_base64, hexlify

from uncia_envelope import Choice, Parameter, enveloped

# Payloads up to this are whole in memory, so that neither making nor checking them is part of the
# transfer; larger ones are made and checked while they pass.
MOST_IN_MEMORY = 128 << 20
PART_BYTES = 16 << 20  # of a multipart upload; as many parts as PARTS are in memory at a time
PARTS = 4
MOST_PARTS = 10_000
PIECE = 1 << 20
FIELDS = 5

_client = None


@enveloped(
    {
        "payload": Choice("", echoes=False),
        "size": Parameter(1 << 10, 0, 5 << 30, "B"),
        "by": Choice("inline", ("inline", "store", "size")),
        "threshold": Parameter(100 << 10, 0, 5 << 30, "B"),
        "remove": Choice(True, (True, False)),
    }
)
def handler(payload, size, by, threshold, remove):
    result = {"taken": 0}
    if payload:
        sent, taken, received = take(payload, remove)
        result["taken"] = taken
        result["uncia"] = {"spans": [["transfer", sent, received]]}
    if by == "size":
        by = "inline" if size <= threshold else "store"
    result["payload"], result["sha256"] = hand_on(size, by)
    result["size"] = size
    return result, True


def take(payload, remove):
    """When the payload was sent, its bytes, and when all were here; raises if they are others."""
    fields = payload.split(" ", FIELDS - 1)
    if len(fields) != FIELDS or fields[0] not in ("inline", "store"):
        raise ValueError("payload: this is no payload of a relay; hand on {{answer.payload}}")
    by, sent, size, digest, content = fields
    sent, size = int(sent), int(size)
    if by == "inline":
        data = a2b_base64(content)
        received = time.time_ns()
        made, count = hashlib.sha256(data), len(data)
    else:
        made, count, received = read(content, size)
    if count != size:
        raise ValueError(f"payload: it has {count} bytes, not {size} as was sent")
    if made.hexdigest() != digest:
        raise ValueError(f"payload: its SHA-256 is {made.hexdigest()}, not {digest} as was sent")
    if by == "store" and remove:
        store().delete_object(Bucket=bucket(), Key=content)
    return sent, size, received


def read(key, size):
    """The digest and the bytes of an object, and when all were here."""
    body = store().get_object(Bucket=bucket(), Key=key)["Body"]
    if size <= MOST_IN_MEMORY:
        data = body.read()
        received = time.time_ns()
        return hashlib.sha256(data), len(data), received
    made, count = hashlib.sha256(), 0
    for piece in body.iter_chunks(PIECE):
        made.update(piece)
        count += len(piece)
    return made, count, time.time_ns()


def hand_on(size, by):
    """The next payload as the next function takes it, and its digest."""
    if size == 0:
        return "", hashlib.sha256().hexdigest()
    if by == "inline":
        if size > MOST_IN_MEMORY:
            raise ValueError(f"size: {size} bytes are too many to hand on inline; use store")
        data = os.urandom(size)
        digest = hashlib.sha256(data).hexdigest()
        sent = time.time_ns()
        content = b2a_base64(data, newline=False).decode()
        return f"inline {sent} {size} {digest} {content}", digest
    source = Source(size)
    key = os.environ.get("UNCIA_STORE_PREFIX", "") + "relay/" + hexlify(os.urandom(16)).decode()
    target, api, options = bucket(), store(), parts(size)
    sent = time.time_ns()
    api.upload_fileobj(source, target, key, Config=options)
    digest = source.digest()
    return f"store {sent} {size} {digest} {key}", digest


class Source:
    """Bytes that do not compress, as a file that is read once, and their digest."""

    def __init__(self, size):
        self.left = size
        self.sha256 = hashlib.sha256()
        self.data = self.make(size) if size <= MOST_IN_MEMORY else None
        self.at = 0

    def make(self, size):
        data = os.urandom(size)
        self.sha256.update(data)
        return data

    def read(self, size=-1):
        size = self.left if size is None or size < 0 else min(size, self.left)
        self.left -= size
        if self.data is None:
            return self.make(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def digest(self):
        return self.sha256.hexdigest()


def bucket():
    name = os.environ.get("UNCIA_STORE_BUCKET")
    if not name:
        raise RuntimeError("this function reaches no store: name it in its reach ([store])")
    return name


def store():
    """The client of AWS's SDK, made once."""
    global _client
    if _client is None:
        import boto3
        from botocore.config import Config

        # The function checks a digest of its own.
        _client = boto3.client(
            "s3",
            config=Config(
                s3={"addressing_style": "path", "payload_signing_enabled": False},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    return _client


def parts(size):
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=max(PART_BYTES, -(-size // MOST_PARTS)),
        max_concurrency=PARTS,
        io_chunksize=PIECE,
    )
