"""What is kept in the store: contents by their SHA-256, and what was made of what."""

import hashlib
import json
import os

_client = None


def digest(content):
    return hashlib.sha256(content).hexdigest()


def put(content):
    """Leave content in the store, unless it is there; its SHA-256."""
    name = digest(content)
    api = _store()
    try:
        api.head_object(Bucket=_bucket(), Key=_key("contents", name))
    except api.exceptions.ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        api.put_object(Bucket=_bucket(), Key=_key("contents", name), Body=content)
    return name


def get(name):
    """The content with this SHA-256, which is checked."""
    if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
        raise ValueError(f"{name[:80]!r} is no SHA-256 in hexadecimal")
    api = _store()
    try:
        content = api.get_object(Bucket=_bucket(), Key=_key("contents", name))["Body"].read()
    except api.exceptions.NoSuchKey:
        raise ValueError(f"there is no content {name} in the store") from None
    if digest(content) != name:
        raise ValueError(f"the content {name} in the store has been changed: it is another")
    return content


def made(action):
    """What was made by an action, JSON by the action's own SHA-256; None if it was not yet."""
    api = _store()
    key = _key("actions", digest(json.dumps(action, sort_keys=True).encode()))
    try:
        return json.loads(api.get_object(Bucket=_bucket(), Key=key)["Body"].read())
    except api.exceptions.NoSuchKey:
        return None


def note(action, result):
    """Note what was made by an action."""
    key = _key("actions", digest(json.dumps(action, sort_keys=True).encode()))
    _store().put_object(Bucket=_bucket(), Key=key, Body=json.dumps(result).encode())


def _key(kind, name):
    return f"{os.environ.get('UNCIA_STORE_PREFIX', '')}compile/{kind}/{name}"


def _bucket():
    bucket = os.environ.get("UNCIA_STORE_BUCKET")
    if not bucket:
        raise RuntimeError("this function reaches no store: name it in its reach ([store])")
    return bucket


def _store():
    """The client of AWS's SDK, made once."""
    global _client
    if _client is None:
        import boto3
        from botocore.config import Config

        _client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    return _client
