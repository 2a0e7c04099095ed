"""The HTTP server architecture: any server at PORT, several requests at a time on one instance."""

import concurrent.futures
import http.client
import json
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from uncia import functions

from .conftest import Platform, Serve
from .test_serving import log, wait_for

# The end of a server's source, behind the methods of its handler.
SERVING = """
    def log_message(self, *arguments):
        pass

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

Server(("", int(os.environ["PORT"])), Handler).serve_forever()
"""

# Requests to /meet wait until as many as the query says have met, and /exit until so many hang.
SERVER = (
    """
import http.server, json, os, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    barriers, lock = {}, threading.Lock()
    hanging, changed = 0, threading.Condition()

    def serve(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, _, query = self.path.partition("?")
        status = 200
        if path == "/meet":
            with self.lock:
                barrier = self.barriers.setdefault(query, threading.Barrier(int(query)))
            barrier.wait()
        elif path == "/status":
            status = int(query)
        elif path == "/hang":
            with self.changed:
                type(self).hanging += 1
                self.changed.notify_all()
            time.sleep(3600)
        elif path == "/exit":
            with self.changed:
                self.changed.wait_for(lambda: self.hanging == int(query))
            os._exit(3)
        elif path == "/compute":
            end = time.thread_time() + 0.05
            while time.thread_time() < end:
                pass
        elif path == "/large":
            body = b"x" * int(query)
        elif path == "/garbage":
            self.wfile.write(b"what do you want?\\r\\n\\r\\n")
            self.close_connection = True
            return
        elif path == "/close":
            self.close_connection = True
            return
        answer = body if path in ("/echo", "/large") else json.dumps({
            "method": self.command, "path": self.path, "headers": self.headers.items(),
            "body": body.decode(), "service": os.environ["K_SERVICE"],
        }).encode()
        self.send_response(status)
        self.send_header("x-own", "a")
        self.send_header("x-own", "b")
        self.send_header("x-uncia-billed-ns", "1")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_PROPFIND = serve
"""
    + SERVING
)


def create(platform: Platform, source: str = SERVER, **settings: Any) -> str:
    """Create the function ``f`` and its URL; return the URL's path."""
    tags = {"uncia:architecture": "http"} | settings.pop("Tags", {})
    defaults = {"Handler": "handler.py", "MemorySize": 1769}
    platform.create("f", source, Tags=tags, **(defaults | settings))
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    return str(url["FunctionUrl"]).removeprefix(f"http://{platform.address}").rstrip("/")


def ask(
    platform: Platform,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(platform.address, timeout=scaled(60))
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


@contextmanager
def in_flight(platform: Platform, *paths: str) -> Iterator[list[concurrent.futures.Future[Any]]]:
    """Ask for all these paths at once; wait for the answers at the end."""
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        yield [pool.submit(ask, platform, path) for path in paths]


def message(text: bytes) -> str:
    return str(json.loads(text)["Message"])


def test_a_request_and_its_answer_pass_as_they_are(platform: Platform) -> None:
    url = create(platform)
    headers = {"X-Own": "1", "Host": "localhost:1", "Connection": "x-hop", "X-Hop": "no"}
    headers["X-Uncia-Invocation"] = "measured"
    body = "grüße".encode()
    answer, text = ask(platform, f"{url}/a%2Fb//c?x=%26&y", "PUT", body, headers)
    seen = json.loads(text)
    assert (answer.status, seen["method"], seen["path"]) == (200, "PUT", "/a%2Fb//c?x=%26&y")
    assert (seen["body"], seen["service"]) == ("grüße", "f")
    assert answer.headers.get_all("x-own") == ["a", "b"]
    got = {name.lower(): value for name, value in seen["headers"]}
    assert (got["x-own"], got["host"]) == ("1", "localhost:1")
    assert got["x-forwarded-host"] == "localhost:1"
    assert (got["x-forwarded-for"], got["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert "x-hop" not in got
    # What the platform measured, and not what the server says of it.
    (row,) = log(platform)
    assert answer.headers.get_all("x-uncia-billed-ns") == [str(row["billed"])]
    unasked, _ = ask(platform, f"{url}/")
    assert unasked.headers["x-uncia-outcome"] == "ok"
    assert unasked.headers["x-uncia-billed-ns"] is None
    assert (row["outcome"], row["start"], row["shared"]) == ("ok", "cold", False)
    assert (row["request_bytes"], row["response_bytes"]) == (len(body), len(text))
    assert row["cpu_user"] + row["cpu_system"] > 0
    assert row["memory_peak"] > 0


def test_every_method_and_status_pass(platform: Platform) -> None:
    url = create(platform)
    for method in ["DELETE", "PATCH", "OPTIONS", "PROPFIND"]:
        answer, text = ask(platform, f"{url}/", method)
        assert (answer.status, json.loads(text)["method"]) == (200, method)
    answer, text = ask(platform, f"{url}/large?9", "HEAD")
    assert (answer.status, answer.headers["content-length"], text) == (200, "9", b"")
    for status in (201, 302, 404, 418, 500):
        answer, text = ask(platform, f"{url}/status?{status}")
        assert (answer.status, json.loads(text)["path"]) == (status, f"/status?{status}")
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["ok"] * 9 + ["function_error"]
    assert "status 500" in rows[-1]["error"]
    assert len({row["instance"] for row in rows}) == 1


def test_invoke_is_a_post_to_the_root(platform: Platform) -> None:
    create(platform)
    answer, seen = platform.invoke("f", {"a": 1})
    assert "FunctionError" not in answer
    assert (seen["method"], seen["path"], json.loads(seen["body"])) == ("POST", "/", {"a": 1})
    assert ["content-type", "application/json"] in [[n.lower(), v] for n, v in seen["headers"]]


def test_an_instance_serves_as_many_as_its_concurrency_and_another_the_rest(
    serve: Serve,
) -> None:
    platform = serve({"shutdown_grace_ms": 0})
    url = create(platform, Tags={"uncia:concurrency": "3"})
    # Each answer waits for all the others: none could come if they were served one after the other.
    with in_flight(platform, *[f"{url}/meet?3"] * 3) as answers:
        pass
    assert [answer.result()[0].status for answer in answers] == [200] * 3
    rows = log(platform)
    assert len({row["instance"] for row in rows}) == 1
    assert max(row["started"] for row in rows) <= min(row["ended"] for row in rows)
    assert {row["shared"] for row in rows} == {True}
    with in_flight(platform, *[f"{url}/hang"] * 4):
        wait_for(lambda: _serving(platform) == 2)
        platform.stop()


def _serving(platform: Platform) -> int:
    answer, text = ask(platform, "/uncia/v1/health")
    assert answer.status == 200
    return int(json.loads(text)["instances"]["busy"])


def test_eighty_at_a_time_are_the_default(platform: Platform) -> None:
    url = create(platform)
    with in_flight(platform, *[f"{url}/meet?80"] * 80) as answers:
        pass
    assert [answer.result()[0].status for answer in answers] == [200] * 80
    rows = log(platform)
    assert len({row["instance"] for row in rows}) == 1
    assert max(row["started"] for row in rows) <= min(row["ended"] for row in rows)
    # One of them caused the start; the others waited for it.
    assert sorted(row["start"] for row in rows) == ["cold"] + ["warm"] * 79
    (instance,) = log(platform, "instances")
    assert instance["invocations"] == 80


def test_what_overlaps_shares_the_cpu_time(platform: Platform) -> None:
    url = create(platform)
    ask(platform, f"{url}/")
    with in_flight(platform, *[f"{url}/meet?2"] * 2, *[f"{url}/compute"] * 2):
        pass
    rows = log(platform)[1:]
    shared = [row for row in rows if row["shared"]]
    assert len(shared) >= 2
    used = sum(row["cpu_user"] + row["cpu_system"] for row in rows)
    assert used >= 2 * 50_000_000
    # Of what overlaps only the CPU time can be told apart.
    assert {(row["memory_avg"], row["memory_peak"]) for row in shared} == {(None, None)}
    # In the middle of one that computes for 50 ms, the instance does not idle.
    (instance,) = log(platform, "instances")
    long = [row for row in rows if row["execution"] >= 50_000_000]
    assert len(long) >= 2
    for middle in [row["started"] + row["execution"] // 2 for row in long]:
        assert not any(idle["start"] < middle < idle["end"] for idle in instance["idle"])


def test_a_request_whose_time_is_up_leaves_the_others(platform: Platform) -> None:
    url = create(platform, Timeout=3)
    answer, _ = ask(platform, f"{url}/")
    instance = answer.headers["x-uncia-instance"]
    late, text = ask(platform, f"{url}/hang")
    assert (late.status, "timed out after 3.00 seconds" in message(text)) == (504, True)
    answer, _ = ask(platform, f"{url}/")
    assert answer.headers["x-uncia-instance"] == instance
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["ok", "timeout", "ok"]
    assert rows[1]["execution"] >= 3_000_000_000


def test_an_instance_that_ends_fails_all_in_flight(platform: Platform) -> None:
    url = create(platform)
    with in_flight(platform, *[f"{url}/hang"] * 3) as answers:
        answer, text = ask(platform, f"{url}/exit?3")
        assert (answer.status, message(text).endswith("exit status 3")) == (502, True)
    outcomes = [future.result()[0].status for future in answers]
    assert set(outcomes) == {502}
    rows = log(platform)
    failed = [row for row in rows if row["outcome"] == "function_error"]
    assert len(failed) == 4
    assert all("exit status 3" in row["error"] for row in failed)
    assert ask(platform, f"{url}/")[0].status == 200


BAD_SERVERS = {
    "never": ("import time\ntime.sleep(3600)\n", "does not listen at port 8080"),
    "elsewhere": (
        SERVER.replace('int(os.environ["PORT"])', "3000"),
        "it listens at port 3000 instead",
    ),
    "ends": ("raise SystemExit(7)\n", "exit status 7"),
}


@pytest.mark.parametrize("case", BAD_SERVERS)
def test_a_server_that_does_not_listen_is_told_apart(serve: Serve, case: str) -> None:
    source, sentence = BAD_SERVERS[case]
    platform = serve({"init_timeout_ms": 5_000})
    url = create(platform, source)
    answer, text = ask(platform, f"{url}/")
    assert answer.status == 503
    assert sentence in message(text)
    (row,) = log(platform)
    assert (row["outcome"], sentence in row["error"]) == ("function_error", True)
    wait_for(lambda: _instances(platform) == 0)


def _instances(platform: Platform) -> int:
    _, text = ask(platform, "/uncia/v1/health")
    counts = json.loads(text)["instances"]
    return sum(value for value in counts.values() if isinstance(value, int))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("/garbage", "answered no valid HTTP"), ("/close", "closed the connection without an answer")],
)
def test_what_is_no_http_ends_the_instance(platform: Platform, path: str, sentence: str) -> None:
    url = create(platform)
    answer, text = ask(platform, f"{url}{path}")
    assert (answer.status, sentence in message(text)) == (502, True), text
    wait_for(lambda: _instances(platform) == 0)
    (row,) = log(platform)
    assert sentence in row["error"]
    assert ask(platform, f"{url}/")[0].status == 200


def test_an_answer_too_large_is_an_error_and_the_instance_lives(platform: Platform) -> None:
    create(platform)
    first = platform.headers("f")["x-uncia-instance"]
    # What comes back is JSON in JSON, in which a quotation mark is four characters.
    answer, error = platform.invoke("f", {"a": '"' * 2_000_000})
    assert (answer["FunctionError"], error["errorType"]) == (
        "Unhandled",
        "Function.ResponseSizeTooLarge",
    )
    assert platform.headers("f")["x-uncia-instance"] == first


def test_a_frozen_server_goes_on_with_the_next_request(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 100})
    url = create(platform)
    first, _ = ask(platform, f"{url}/")

    def frozen() -> bool:
        return bool(json.loads(ask(platform, "/uncia/v1/health")[1])["instances"]["frozen"] == 1)

    wait_for(frozen)
    answer, _ = ask(platform, f"{url}/echo", "POST", b"on")
    assert (answer.status, answer.headers["x-uncia-start"]) == (200, "thawed")
    assert answer.headers["x-uncia-instance"] == first.headers["x-uncia-instance"]


def test_a_server_with_the_hosts_network_has_a_port_of_its_own(serve: Serve) -> None:
    platform = serve({"shutdown_grace_ms": 0})
    url = create(platform, Tags={"uncia:network": "host", "uncia:concurrency": "1"})
    with in_flight(platform, *[f"{url}/hang"] * 2):
        wait_for(lambda: _serving(platform) == 2)
        assert ask(platform, f"{url}/")[0].status == 200
        platform.stop()


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_a_plain_node_server(platform: Platform) -> None:
    source = """
        require("http").createServer((request, answer) => {
          const parts = [];
          request.on("data", (part) => parts.push(part));
          request.on("end", () => answer.end(request.method + Buffer.concat(parts)));
        }).listen(process.env.PORT);
    """
    files = {"server.js": textwrap.dedent(source)}
    url = create(platform, files, Runtime="nodejs20.x", Handler="server.js")  # type: ignore[arg-type]
    for _ in range(3):
        answer, text = ask(platform, f"{url}/", "POST", b" it")
        assert (answer.status, text) == (200, b"POST it")


@pytest.mark.skipif(shutil.which("ruby") is None, reason="Ruby is not installed")
def test_a_plain_ruby_server(platform: Platform) -> None:
    source = """
        require "socket"
        server = TCPServer.new(ENV["PORT"].to_i)
        loop do
          connection = server.accept
          # Nothing at all comes from whoever looks whether it listens.
          if (line = connection.gets)
            nil until connection.gets.chomp.empty?
            text = "#{line.split[0]} with #{Gem.name}"
            connection.write("HTTP/1.1 200 OK\\r\\nContent-Length: #{text.size}\\r\\n\\r\\n#{text}")
          end
          connection.close
        end
    """
    files = {"server.rb": textwrap.dedent(source)}
    url = create(platform, files, Runtime="ruby3.1", Handler="server.rb")  # type: ignore[arg-type]
    for _ in range(2):
        answer, text = ask(platform, f"{url}/")
        assert (answer.status, text) == (200, b"GET with Gem")


def test_a_server_in_java(java: None, platform: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Handler.java").write_text(
        """
        import com.sun.net.httpserver.HttpServer;
        import java.net.InetSocketAddress;

        public class Handler {
            Object handleRequest() { return null; }
            public static void main(String[] arguments) throws Exception {
                int port = Integer.parseInt(System.getenv("PORT"));
                HttpServer server = HttpServer.create(new InetSocketAddress(port), 0);
                server.createContext("/", exchange -> {
                    byte[] answer = exchange.getRequestMethod().getBytes();
                    exchange.sendResponseHeaders(200, answer.length);
                    exchange.getResponseBody().write(answer);
                    exchange.close();
                });
                server.start();
            }
        }
        """
    )
    code = {"ZipFile": functions.package(folder).read_bytes()}
    url = create(platform, Runtime="java21", Handler="Handler", Code=code)
    for _ in range(2):
        answer, text = ask(platform, f"{url}/")
        assert (answer.status, text) == (200, b"GET")


def test_what_does_not_fit_is_refused(platform: Platform) -> None:
    refused = platform.client.exceptions.InvalidParameterValueException
    http_tag = {"uncia:architecture": "http"}
    for tags, runtime, sentence in [
        ({"uncia:concurrency": "2"}, "python3.11", "uncia:architecture"),
        ({"uncia:architecture": "grpc"}, "python3.11", "polling, http or code"),
        (http_tag | {"uncia:concurrency": "0"}, "python3.11", "between 1 and 1000"),
        (http_tag | {"uncia:start-from": "zygote"}, "python3.11", "fresh or prepared"),
        (http_tag, "bash", "node, provided, python or ruby"),
    ]:
        with pytest.raises(refused, match=sentence):
            platform.create("g", Tags=tags, Runtime=runtime)
