"""The documents from Node.js and Java: what their helpers say is what the one in Python says."""

import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from run_helpers import Uncia, finish

from uncia.errors import UnciaError
from uncia.functions import java
from uncia.services import redis_server

FILE = """\
name: counted
seed: 1
platform: {kind: embedded}
services: {documents: {}}
functions:
  add: {source: ./add, reach: [documents], memory: 512MB, timeout: 30s}
  verify: {source: ./verify, reach: [documents], memory: 512MB, timeout: 30s}
experiments:
  adding: {function: add, closed: {clients: 5, requests: 40}}
  verified: {function: verify, closed: {clients: 1, requests: 1}}
"""

# Each adds one to the same document, and notes that it did.
NODE_ADD = """\
const { ABSENT, ConflictError, Documents } = require("./uncia-documents.cjs");
const documents = new Documents();
exports.handler = async (event, context) => {
  const noted = "done/" + context.awsRequestId;
  for (let attempt = 0; attempt < 1000; attempt++) {
    const [count, revision] = await documents.get("count");
    try {
      const steps = [["put", "count", revision, (count ?? 0) + 1], ["put", noted, ABSENT, attempt]];
      return await documents.transact(steps);
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
    }
  }
  throw new Error("1000 conflicts");
};
"""

NODE_VERIFY = """\
const assert = require("node:assert/strict");
const { ABSENT, ConflictError, Documents } = require("./uncia-documents.cjs");
const documents = new Documents();
exports.handler = async (event, context) => {
  const done = [];
  for await (const entry of documents.list("done/", 7)) done.push(entry);
  const [count, revision] = await documents.get("count");
  assert.equal(count, 40);
  assert.equal(done.length, 40);
  assert.deepEqual(done.map(([key]) => key), done.map(([key]) => key).sort());
  const changes = await documents.changes();
  assert.deepEqual(changes.map((it) => it.position), Array.from({ length: 80 }, (_, it) => it + 1));
  assert.ok(changes.every(({ key, writer }) => key === "count" || key === "done/" + writer));
  assert.deepEqual(await documents.changes(78, 1), changes.slice(78, 79));
  assert.deepEqual(await documents.changes(80, 1, 0.05), []);
  await assert.rejects(
    documents.transact([["put", "other", null, 1], ["put", "count", revision - 1, 0]]),
    (error) =>
      error instanceof ConflictError && error.key === "count" && error.revision === revision,
  );
  assert.deepEqual(await documents.get("other"), [null, ABSENT]);
  await assert.rejects(documents.put("", 1), /must not be empty/);
  await assert.rejects(documents.put("nan", { a: [NaN] }), /no JSON/);
  const deleted = await documents.delete("count", revision);
  assert.deepEqual(await documents.changes(80), [
    { position: deleted, key: "count", kind: "delete", value: null, writer: context.awsRequestId },
  ]);
  const value = { a: "é", b: [0.1, null, "\\u2028"] };
  assert.ok((await documents.put("count", value, ABSENT)) > deleted);
  assert.deepEqual((await documents.get("count"))[0], value);
  await documents.close();
  assert.deepEqual((await documents.get("count"))[0], value);
  return {};
};
"""

JAVA_ADD = """\
import com.amazonaws.services.lambda.runtime.Context;
import com.google.gson.JsonPrimitive;
import java.util.List;
import java.util.Map;
import uncia.Documents;
import uncia.Documents.Step;

public class Handler {
    private static final Documents DOCUMENTS = new Documents();

    public Object handleRequest(Object event, Context context) {
        String id = context.getAwsRequestId();
        for (int attempt = 0; attempt < 1000; attempt++) {
            Documents.Document count = DOCUMENTS.get("count");
            int next = count.value() == null ? 1 : count.value().getAsInt() + 1;
            try {
                DOCUMENTS.transact(
                        List.of(
                                Step.put("count", count.revision(), new JsonPrimitive(next)),
                                Step.put("done/" + id, 0L, new JsonPrimitive(attempt))),
                        id);
                return Map.of("count", next);
            } catch (Documents.ConflictException conflict) {
                continue;
            }
        }
        throw new IllegalStateException("1000 conflicts");
    }
}
"""

JAVA_VERIFY = """\
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import uncia.Documents;
import uncia.Documents.Step;

public class Handler {
    private static void check(boolean holds, Object what) {
        if (!holds) throw new AssertionError(String.valueOf(what));
    }

    public Object handleRequest(Object event) {
        Documents documents = new Documents();
        List<Documents.Entry> done = documents.list("done/");
        Documents.Document count = documents.get("count");
        check(count.value().getAsInt() == 40 && done.size() == 40, count + " " + done.size());
        List<Documents.Change> changes = documents.changes(0, 1000, 0);
        check(IntStream.range(0, 80).allMatch(it -> changes.get(it).position() == it + 1), changes);
        check(changes.stream().allMatch(
                it -> it.key().equals("count") || it.key().equals("done/" + it.writer())), changes);
        check(documents.changes(78, 1, 0).equals(changes.subList(78, 79)), changes);
        check(documents.changes(80, 1, 50).isEmpty(), "more");
        try {
            documents.transact(
                    List.of(Step.put("other", null, new JsonPrimitive(1)),
                            Step.put("count", count.revision() - 1, new JsonPrimitive(0))), "");
            check(false, "a transaction on an old revision was carried out");
        } catch (Documents.ConflictException conflict) {
            check(conflict.key.equals("count") && conflict.revision == count.revision(), conflict);
        }
        try {
            documents.put("nan", new JsonPrimitive(Double.NaN), null, "");
            check(false, "a number that is none was written");
        } catch (IllegalArgumentException refused) {
            check(documents.get("nan").revision() == Documents.ABSENT, refused);
        }
        check(documents.get("other").revision() == Documents.ABSENT, "other");
        long deleted = documents.delete("count", count.revision(), "");
        check(documents.changes(80, 9, 0).equals(
                List.of(new Documents.Change(deleted, "count", "delete", null, ""))), "deleted");
        var value = JsonParser.parseString("{\\"a\\": \\"\\u00e9\\", \\"b\\": [0.1, null]}");
        check(documents.put("count", value, Documents.ABSENT, "") > deleted, "revision");
        check(documents.get("count").value().equals(value), documents.get("count"));
        documents.close();
        check(documents.get("count").value().equals(value), "after close");
        return Map.of();
    }
}
"""

PINS = Path(__file__).parent / "redis_lock"


def _written(folder: Path, language: str, name: str, code: str) -> None:
    folder /= name
    folder.mkdir()
    if language == "node":
        (folder / "index.js").write_text(code)
        for file in ("package.json", "package-lock.json"):
            (folder / file).write_bytes((PINS / file).read_bytes())
    else:
        (folder / "Handler.java").write_text(code)
        (folder / "requirements.txt").write_text(
            "redis.clients:jedis:5.2.0\ncom.amazonaws:aws-lambda-java-core:1.2.3\n"
        )
        (folder / "requirements.lock").write_bytes((PINS / "java.lock").read_bytes())


@pytest.mark.parametrize(
    ("language", "add", "verify"),
    [("node", NODE_ADD, NODE_VERIFY), ("java", JAVA_ADD, JAVA_VERIFY)],
)
def test_documents_from_other_languages(
    language: str, add: str, verify: str, tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    _needs(language)
    _written(tmp_path, language, "add", add)
    _written(tmp_path, language, "verify", verify)
    (tmp_path / "counted.yaml").write_text(FILE)
    ended = finish(uncia("run", tmp_path / "counted.yaml", "--out", tmp_path / "out"))
    assert ended.code == 0, ended.out + ended.err
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "invocations.parquet")
    assert rows["outcome"].to_pylist() == ["ok"] * 41, rows["error"].to_pylist()[-1]
    assert not list((state_home / "services").iterdir())


def _needs(language: str) -> None:
    """Skips a test where its language, its packages' program, or the server is missing."""
    try:
        redis_server.PROGRAM.find()
        if language == "java":
            java.find()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    program = {"node": "npm", "java": "mvn"}[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
