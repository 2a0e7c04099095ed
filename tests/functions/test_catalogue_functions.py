"""Every function of the catalogue, packaged and run in a process of its own."""

import base64
import hashlib
import itertools
import json
import re
import shutil
import sys
import zipfile
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia.functions import check_answer, list_functions, load, package

# They need services, and have tests of their own.
APPLICATIONS = {"alexa", "compile", "images", "smallbank", "wages"}
# Its program is in its root file system, and here if it is installed.
MISSING = set() if shutil.which("tesseract") else {"ocr-img"}
FUNCTIONS = {it.name: it for it in list_functions() if it.name not in APPLICATIONS | MISSING}
IN_PYTHON = [n for n, f in FUNCTIONS.items() if f.parameters and "python" in f.runtime_names]
EACH = [(f.name, runtime) for f in FUNCTIONS.values() for runtime in f.runtime_names]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Imports a packaged handler into this process, for checks of its inner parts."""
    loaded: dict[str, ModuleType] = {}

    def load_module(name: str, file: str = "handler") -> ModuleType:
        key = f"{name}_{file}"
        if key not in loaded:
            folder = tmp_path_factory.mktemp(name)
            with zipfile.ZipFile(package(name).path) as archive:
                archive.extractall(folder)
            import importlib.util

            sys.path.insert(0, str(folder))
            try:
                spec = importlib.util.spec_from_file_location(key, folder / f"{file}.py")
                assert spec is not None
                assert spec.loader is not None
                loaded[key] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(loaded[key])
            finally:
                sys.path.remove(str(folder))
                sys.modules.pop("uncia_envelope", None)
                sys.modules.pop("uncia_memory", None)
        return loaded[key]

    return load_module


@pytest.mark.skipif(bool(MISSING), reason="ocr-img is left out: it needs tesseract")
def test_programs_of_functions_are_here() -> None:
    assert "ocr-img" in FUNCTIONS


def test_the_catalogue_has_what_it_should() -> None:
    assert set(FUNCTIONS) >= {"hello", "spin", "pyaes", "resize", "payload", "memory", "wait"}
    assert FUNCTIONS["hello"].runtime_names == ["python", "node", "ruby", "java", "go", "provided"]


@pytest.mark.parametrize(("name", "runtime"), EACH)
def test_default_and_test_size_give_right_answers(name: str, runtime: str, call: Any) -> None:
    function = FUNCTIONS[name]
    small = (
        {**function.preset("small"), "hold": 0} if name == "memory" else function.preset("small")
    )
    first, second, third = call(function, function.preset("test"), {}, small, runtime=runtime)
    for reply in (first, second, third):
        assert check_answer(function, reply["answer"]) == []
    assert [r["answer"]["uncia"]["fresh"] for r in (first, second, third)] == [True, False, False]
    assert len({r["answer"]["uncia"]["instance"] for r in (first, second, third)}) == 1
    for reply in (first, second, third):
        envelope = reply["answer"]["uncia"]
        assert 0 < envelope["handler_start_ns"] <= envelope["handler_end_ns"]
        assert envelope["cpu_ns"] >= 0


@pytest.mark.parametrize(("name", "runtime"), EACH)
def test_every_process_is_fresh_and_another_instance(name: str, runtime: str, call: Any) -> None:
    function = FUNCTIONS[name]
    event = function.preset("test")
    envelopes = [call(function, event, runtime=runtime)[0]["answer"]["uncia"] for _ in range(2)]
    assert [e["fresh"] for e in envelopes] == [True, True]
    assert envelopes[0]["instance"] != envelopes[1]["instance"]


@pytest.mark.parametrize("name", IN_PYTHON)
def test_handler_and_function_yaml_agree_on_defaults(name: str, call: Any) -> None:
    function = FUNCTIONS[name]
    reply = call(function, {})[0]
    from uncia.functions import validate_params

    assert reply["answer"]["parameters"] == validate_params(function, {})


@pytest.mark.parametrize("name", IN_PYTHON)
def test_handler_and_function_yaml_agree_on_ranges_and_units(name: str, call: Any) -> None:
    function = FUNCTIONS[name]
    quick = function.preset("test")
    events, expected = [], []
    for key, parameter in function.parameters.items():
        if parameter.type == "text":
            # Each has tests of its own for what it takes; none takes these.
            events += [{**quick, key: bad} for bad in ("many", None, True, [1], 7)]
            expected += ["error"] * 5
            continue
        if parameter.type == "boolean":
            events += [{**quick, key: bad} for bad in ("true", None, [True], 1)]
            expected += ["error"] * 4
            continue
        assert parameter.low is not None
        assert parameter.high is not None
        for bad in (parameter.low - 1, parameter.high + 1, "many", None, True, [1]):
            events.append({**quick, key: bad})
            expected.append("error")
        if parameter.type == "integer":
            events.append({**quick, key: parameter.low + 0.5})
            expected.append("error")
        if parameter.unit:
            events.append({**quick, key: f"{quick[key]}{parameter.unit}"})
            expected.append("answer")
            events.append({**quick, key: "1parsec"})
            expected.append("error")
        events.append({**quick, key: parameter.low})
        expected.append("answer")
    events.append({**quick, "nosuch": 1})
    expected.append("error")
    replies = call(function, *events)
    for event, want, reply in zip(events, expected, replies, strict=True):
        assert want in reply, (event, reply)
        if want == "error":
            assert reply["error"] == "ValueError"
            assert any(key in reply["message"] for key in (*function.parameters, "nosuch"))


@pytest.mark.parametrize("name", IN_PYTHON)
def test_parameters_arrive_by_function_url_too(name: str, call: Any) -> None:
    function = FUNCTIONS[name]
    event = function.preset("test")
    body = json.dumps(event)
    http = {"version": "2.0", "requestContext": {"http": {"method": "POST"}}}
    encoded = base64.b64encode(body.encode()).decode()
    plain, base64_body, no_object, broken = call(
        function,
        {**http, "body": body, "isBase64Encoded": False},
        {**http, "body": encoded, "isBase64Encoded": True},
        {**http, "body": "[1]"},
        {**http, "body": "{"},
    )
    assert plain["answer"]["parameters"] == event
    assert base64_body["answer"]["parameters"] == event
    assert "object" in no_object["message"]
    assert "error" in broken


def test_hello_takes_any_event(call: Any) -> None:
    for runtime in FUNCTIONS["hello"].runtime_names:
        for reply in call("hello", None, [1], "x", {"a": 1}, {"body": "{"}, runtime=runtime):
            assert reply["answer"]["message"] == "hello"


@pytest.mark.parametrize("runtime", FUNCTIONS["pages"].runtime_names)
def test_pages_reads_so_many_of_the_filler(runtime: str, call: Any) -> None:
    events = ({"count": 50}, {"count": 0}, {"count": -1}, {"count": 0.5})
    some, none, negative, part = call("pages", *events, runtime=runtime, filler=5 * 4_096 + 7)
    answer = some["answer"]
    assert (answer["count"], answer["filler"]) == (50, 5 * 4_096 + 7)
    assert answer["read_ns"] > 0
    assert answer["uncia"]["valid"]
    assert none["answer"]["count"] == 0
    assert "between" in negative["message"]
    assert "whole number" in part["message"]
    (missing,) = call("pages", {"count": 1}, runtime=runtime)
    (small,) = call("pages", {"count": 1}, runtime=runtime, filler=4_095)
    assert "the package has no filler" in missing["message"]
    assert "less than a page" in small["message"]


SPINS = FUNCTIONS["spin"].runtime_names


@pytest.mark.parametrize("runtime", SPINS)
def test_spin_burns_the_cpu_time_asked_for(runtime: str, call: Any) -> None:
    event = {"cpu": 30}
    for reply in call("spin", event, event, {"cpu": 0.5}, {"cpu": 0}, runtime=runtime):
        answer = reply["answer"]
        asked = answer["parameters"]["cpu"] * 1e6
        assert answer["cpu_ns"] >= asked
        assert answer["uncia"]["cpu_ns"] >= asked
        # Of Node.js' whole process, whose compiler has threads of its own; the two clocks of others
        # are not read in the same moment.
        assert runtime == "node" or answer["wall_ns"] + 50_000 >= answer["cpu_ns"] * 0.99
        assert answer["uncia"]["valid"]


@pytest.mark.parametrize("runtime", [it for it in SPINS if it != "python"])
def test_spin_says_what_is_wrong_with_its_parameters(runtime: str, call: Any) -> None:
    event = FUNCTIONS["spin"].preset("test")
    bad: list[Any] = [-1, 600_001, "many", None, True, [1]]
    *refused, unknown = call(
        "spin", *({**event, "cpu": it} for it in bad), {"cpus": 1}, runtime=runtime
    )
    assert all(reply["message"].startswith("cpu: ") for reply in refused)
    assert "not between 0 and 600000 ms" in refused[0]["message"]
    assert 'unknown parameter "cpus"; allowed: cpu, duration, memory' in unknown["message"]


@pytest.mark.parametrize("runtime", [it for it in SPINS if it != "python"])
def test_spin_holds_the_memory_asked_for_and_gives_it_back(runtime: str, call: Any) -> None:
    events = [{"cpu": 0, "memory": size} for size in (400, 300, 0)]
    large, smaller, none = (
        reply["answer"]["uncia"] for reply in call("spin", *events, runtime=runtime)
    )
    assert large["valid"]
    # What is taken costs CPU time; what is held already, or given back, next to none.
    assert large["cpu_ns"] > 2 * max(smaller["cpu_ns"], none["cpu_ns"])


@pytest.mark.parametrize("runtime", SPINS)
def test_spin_takes_the_time_and_memory_asked_for(runtime: str, call: Any, module: Any) -> None:
    events = [{"cpu": 1, "duration": 30, "memory": size} for size in (60, 60, 20, 0)]
    for reply in call("spin", *events, runtime=runtime):
        envelope = reply["answer"]["uncia"]
        assert envelope["handler_end_ns"] - envelope["handler_start_ns"] >= 29_000_000
        assert envelope["valid"]
    if runtime != "python":
        return
    memory = module("spin", "uncia_memory")
    before = memory.resident()
    try:
        # What others in this process take and give meanwhile is far less than a piece.
        for size in (50, 20, 70):
            memory.hold(before + size * memory.MB)
            assert abs(memory.resident() - before - size * memory.MB) < memory.PIECE
            held = sum(len(region) for region in memory.held)
            assert abs(held - size * memory.MB) < memory.PIECE
    finally:
        memory.hold(0)
    assert memory.held == []


def test_wait_waits_without_using_the_cpu(call: Any) -> None:
    (reply,) = call("wait", {"time": 300})
    assert reply["answer"]["wall_ns"] >= 299_000_000
    assert reply["answer"]["uncia"]["cpu_ns"] < 100_000_000


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, 1_000_000])
def test_payload_is_seeded_incompressible_and_verifiable(size: int, call: Any) -> None:
    result, again, other = call("payload", *({"size": size, "seed": seed} for seed in (1, 1, 2)))
    data = base64.b64decode(result["answer"]["data"], validate=True)
    assert len(data) == size
    assert data == hashlib.shake_256(b"1").digest(size)
    assert hashlib.sha256(data).hexdigest() == result["answer"]["sha256"]
    assert result["answer"]["data"] == again["answer"]["data"]
    if size >= 1000:
        assert len(zlib.compress(data, 9)) >= size
        assert result["answer"]["data"] != other["answer"]["data"]


def test_the_largest_payload_fits_lambdas_limit(call: Any) -> None:
    (reply,) = call("payload", {"size": load("payload").parameters["size"].high})
    assert len(json.dumps(reply["answer"])) < 6 * 1024 * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_is_really_resident(call: Any) -> None:
    large, small = call("memory", {"size": 100, "hold": 0}, {"size": 2, "hold": 0})
    held = large["answer"]["rss_held_bytes"] - large["answer"]["rss_before_bytes"]
    assert 95 << 20 <= held <= 110 << 20
    assert large["answer"]["rss_peak_bytes"] >= large["answer"]["rss_held_bytes"] - (1 << 20)
    assert large["answer"]["uncia"]["valid"]
    # It is given back, and where the kernel lets us reset the peak it is this invocation's own.
    assert small["answer"]["rss_before_bytes"] < large["answer"]["rss_held_bytes"] - (80 << 20)
    if not small["answer"]["peak_since_process_start"]:
        assert small["answer"]["rss_peak_bytes"] < large["answer"]["rss_peak_bytes"] - (80 << 20)


def test_aes_matches_fips_197_and_sp_800_38a(module: Any) -> None:
    aes = module("pyaes")
    # FIPS 197, appendix A.1: the last word of the key schedule; appendix B and C.1: whole blocks.
    words = aes.expand_key(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))
    assert len(words) == 44
    assert words[4] == 0xA0FAFE17
    assert words[43] == 0xB6630CA6
    assert aes.encrypt_block(words, 0x3243F6A8885A308D313198A2E0370734) == (
        0x3925841D02DC09FBDC118597196A0B32
    )
    words = aes.expand_key(bytes(range(16)))
    assert aes.encrypt_block(words, 0x00112233445566778899AABBCCDDEEFF) == (
        0x69C4E0D86A7B0430D8CDB78070B4C55A
    )
    # SP 800-38A, F.5.1: four blocks in counter mode.
    plain = bytes.fromhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    cipher = bytes.fromhex(
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
        "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee"
    )
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    counter = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
    assert aes.counter_mode(key, counter, plain) == cipher
    assert aes.counter_mode(key, counter, plain[:61]) == cipher[:61]
    assert aes.counter_mode(key, counter, cipher) == plain
    # The counter wraps round at 2^128.
    wrapped = aes.counter_mode(key, (1 << 128) - 1, bytes(32))[16:]
    assert wrapped == aes.encrypt_block(aes.expand_key(key), 0).to_bytes(16, "big")
    # FIPS 197, figure 7.
    assert [aes.SBOX[i] for i in (0x00, 0x01, 0x53, 0xC5, 0xFF)] == [0x63, 0x7C, 0xED, 0xA6, 0x16]
    assert sorted(aes.SBOX) == list(range(256))


def test_pyaes_notices_a_broken_cipher(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aes = module("pyaes")
    event = {"length": 40, "iterations": 1}
    assert aes.handler(event)["uncia"]["valid"] is True
    right = aes.encrypt_block
    monkeypatch.setattr(aes, "encrypt_block", lambda words, block: right(words, block) ^ 1)
    assert aes.handler(event)["uncia"]["valid"] is False


def test_resize_notices_a_wrong_picture(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    resize = module("resize")
    event = load("resize").preset("test")
    assert resize.handler(event)["uncia"]["valid"] is True
    right = resize.encode

    def turned(image: Any) -> bytes:
        done: bytes = right(image.rotate(180) if image.width == event["to_width"] else image)
        return done

    def dark(image: Any) -> bytes:
        done: bytes = right(
            image.point(lambda v: v // 2) if image.width == event["to_width"] else image
        )
        return done

    for wrong in (turned, dark):
        monkeypatch.setattr(resize, "encode", wrong)
        assert resize.handler(event)["uncia"]["valid"] is False


@pytest.mark.parametrize(
    ("width", "height", "to_width", "to_height"),
    [
        sides
        for sides in itertools.product((16, 31, 100, 333), repeat=4)
        if sides[0] <= sides[1] or sides[2] >= sides[3]
    ][::7],
)
def test_resize_is_right_at_odd_sizes(
    width: int, height: int, to_width: int, to_height: int, module: Any
) -> None:
    answer = module("resize").handler(
        {"width": width, "height": height, "to_width": to_width, "to_height": to_height}
    )
    assert answer["uncia"]["valid"]
    assert (answer["width"], answer["height"]) == (to_width, to_height)


@settings(max_examples=200)
@given(
    text=st.from_regex(r"(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})? ?(ns|us|ms|s|min|h)", fullmatch=True)
)
def test_handlers_read_quantities_as_experiment_files_do(text: str, module: Any) -> None:
    from uncia.units import UnitError, parse_duration

    try:
        exact = parse_duration(text) / 1_000_000
    except UnitError:
        return  # finer than a nanosecond
    parameter = module("wait").Parameter(0, 0, 1e18, "ms", whole=False)
    assert parameter.read("x", text) == pytest.approx(exact, rel=1e-12, abs=1e-12)


def test_node_reports_times_of_this_century(call: Any) -> None:
    (reply,) = call("hello", {}, runtime="node")
    envelope = reply["answer"]["uncia"]
    assert re.fullmatch(r"[0-9a-f]{16}", envelope["instance"])
    assert 1.6e18 < envelope["handler_start_ns"] <= envelope["handler_end_ns"] < 4.1e18
