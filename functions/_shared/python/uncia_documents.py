"""Documents: JSON with a revision, in the service `documents`, which the function must reach.

Copied beside the handler when a function is packaged. It needs `redis` among the function's
requirements, and is loaded by functions that import it alone. Revisions are numbers that only grow,
over all documents: the position of a change is the revision that it gave.
"""

import json
import os
import re
import uuid

try:
    import redis
except ImportError:
    raise ImportError(
        "uncia_documents needs redis: write redis into requirements.txt beside the handler, and"
        " pin it with `uncia functions lock FOLDER`"
    ) from None
from redis.backoff import NoBackoff
from redis.retry import Retry

_TIMEOUT_S = 30
_PAGE = 1000
_TRACE = "_X_AMZN_TRACE_ID"
ABSENT = 0  # the revision of a document that is not there


class DocumentsError(RuntimeError):
    """The service cannot do what it was asked for; the message says why."""


class ConflictError(DocumentsError):
    """A document has another revision than was asked for, so nothing was done.

    `key` is the document's, `revision` the one that it has.
    """

    def __init__(self, key, revision):
        super().__init__(f"{key!r} has revision {revision} by now: read it again")
        self.key, self.revision = key, revision


class Documents:
    """The documents that this function reaches."""

    def __init__(self):
        """Connects at the first request. Raises DocumentsError where there is no such service."""
        try:
            self._prefix = os.environ["UNCIA_DOCUMENTS_PREFIX"]
            self._script = os.environ["UNCIA_DOCUMENTS_SCRIPT"]
            self._client = redis.Redis.from_url(
                os.environ["REDIS_URL"],
                username=os.environ.get("UNCIA_DOCUMENTS_USER") or None,
                password=os.environ.get("UNCIA_DOCUMENTS_PASSWORD") or None,
                db=int(os.environ.get("UNCIA_DOCUMENTS_DATABASE") or 0),
                socket_timeout=_TIMEOUT_S,
                decode_responses=True,
                protocol=2,
                # A transaction whose answer was lost may have been carried out.
                retry=Retry(NoBackoff(), 0),
            )
        except KeyError as error:
            raise DocumentsError(
                f"{error.args[0]} is not set: name documents in the function's reach"
            ) from None
        self._keys = [self._prefix + it for it in ("documents", "order", "changes", "last")]

    def get(self, key):
        """A document and its revision; `(None, ABSENT)` if there is none."""
        return _parsed(self._ask("HGET", self._keys[0], key))

    def put(self, key, value, revision=None, writer=None):
        """Write a document, if it still has `revision` where one is given; its new revision.

        `writer` is noted in the change: the id of the invocation, unless another is given, by
        which the platform tells whose change it is. Raises ConflictError.
        """
        return self.transact([("put", key, revision, value)], writer)[0]

    def delete(self, key, revision=None, writer=None):
        """Remove a document, if it still has `revision` where one is given. Raises ConflictError.

        Returns the position of the change, or ABSENT if there was none.
        """
        return self.transact([("delete", key, revision)], writer)[0]

    def transact(self, steps, writer=None):
        """Carry out all steps at once, or none: the revision of each.

        A step is `("put", key, revision, value)`, `("delete", key, revision)` or
        `("check", key, revision)`, with None for a revision that may be any. Each document is named
        once. Raises ConflictError if a document has another revision.
        """
        writer = request_id() if writer is None else writer
        words = []
        for kind, key, revision, *value in steps:
            if kind not in ("put", "delete", "check") or len(value) != (kind == "put"):
                raise ValueError(f"{kind!r} with {len(value)} values is no step of a transaction")
            if not key:
                raise ValueError("a document's key must not be empty")
            text = json.dumps(value[0], separators=(",", ":"), allow_nan=False) if value else ""
            words += [kind, key, "" if revision is None else revision, text]
        result = self._evaluate("transact", writer, *words)
        if result[0] == "conflict":
            raise ConflictError(result[1], int(result[2]))
        return [int(revision) for revision in result[1:]]

    def list(self, prefix="", page=_PAGE):
        """Yield the documents whose keys begin so, by the keys' bytes: key, value, revision.

        What is written meanwhile may be missed or not, where it lies behind.
        """
        after = ""
        while words := self._evaluate("list", prefix, after, page):
            for key, held in zip(words[::2], words[1::2]):
                yield (key, *_parsed(held))
            after = words[-2]

    def changes(self, after=0, limit=_PAGE, wait_s=0):
        """The next changes behind a position, oldest first, at most `limit`; [] if there are none.

        Each is a dict of `position`, `key`, `kind` (put or delete), `value` and `writer`. With
        `wait_s` it waits so long, less than 30 s, for one.
        """
        block = ("BLOCK", max(1, round(wait_s * 1000))) if wait_s > 0 else ()
        words = ("COUNT", limit, *block, "STREAMS", self._keys[2], f"{after}-0")
        streams = self._ask("XREAD", *words)
        return [_change(*entry) for _, entries in streams or () for entry in entries]

    def _evaluate(self, *words):
        return self._ask("EVALSHA", self._script, len(self._keys), *self._keys, *words)

    def _ask(self, *words):
        """Send a command. Raises DocumentsError where the server does not do it."""
        try:
            return self._client.execute_command(*words)
        except redis.exceptions.NoScriptError:
            raise DocumentsError(
                "the documents' server has forgotten its script: it was started again or emptied"
            ) from None
        except redis.exceptions.ConnectionError as error:
            raise DocumentsError(
                f"the documents' server cannot be reached, or went away before it answered: {error}"
            ) from None
        except redis.exceptions.TimeoutError:
            raise DocumentsError("the documents' server does not answer") from None
        except redis.exceptions.ResponseError as error:
            if "OOM" in str(error):
                raise DocumentsError(
                    "the documents' server is full, and nothing was done: its memory must be raised"
                ) from None
            raise DocumentsError(f"the documents' server refuses: {error}") from None


def request_id():
    """The id of the request that is being served, "" where none is known.

    It is the root of the request's trace, which runtimes have in the environment.
    """
    root = re.search(r"Root=1-([0-9a-f]{8})-([0-9a-f]{24})", os.environ.get(_TRACE, ""))
    return str(uuid.UUID(root[1] + root[2])) if root else ""


def _parsed(held):
    """Value and revision of what the server holds: the revision, a blank, and JSON."""
    if held is None:
        return None, ABSENT
    revision, _, text = held.partition(" ")
    return json.loads(text), int(revision)


def _change(position, fields):
    """A change as the stream has it. Its fields come as a dict or as a flat list."""
    if not isinstance(fields, dict):
        fields = dict(zip(fields[::2], fields[1::2]))
    return {
        "position": int(position.partition("-")[0]),
        "key": fields["key"],
        "kind": fields["kind"],
        "value": json.loads(fields["json"]) if fields["json"] else None,
        "writer": fields["writer"],
    }
