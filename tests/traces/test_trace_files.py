"""Files as they come: packed, cut off, of another tool, of no trace; and nothing half-written."""

from __future__ import annotations

import gzip
import lzma
import random
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
import trace_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import (
    AZURE2021,
    COLD_STARTS,
    DURATIONS,
    INVOCATIONS,
    MEMORY,
    REQUESTS,
    cold_start,
    counts,
    left_over,
    request,
    write,
)

from uncia import record, traces
from uncia.errors import UnciaError
from uncia.traces import azure2021, base, lines, output

ROWS = [("a1", "f1", "12.5", "0.25"), ("a1", "f2", "13", "1"), ("a2", "f1", "0.5", "0.75")]


def samples(folder: Path) -> dict[str, Path]:
    """A small good file of every kind."""
    values = [str(value) for value in range(1, 10)]
    return {
        "azure2021": write(folder / "trace.txt", AZURE2021, ROWS),
        "azure2019": write(
            folder / "invocations_per_function_md.anon.d01.csv",
            INVOCATIONS,
            [["o", "a", f"f{i}", "http", *counts({1: i, 9: 3, 1440: 1})] for i in range(3)],
        ),
        "azure2019-durations": write(
            folder / "function_durations_percentiles.anon.d01.csv",
            DURATIONS,
            [["o", "a", f"f{i}", 7, 3, "1.0", "9.0", *values[:7]] for i in range(3)],
        ),
        "azure2019-memory": write(
            folder / "app_memory_percentiles.anon.d01.csv",
            MEMORY,
            [["o", f"a{i}", 3, *values] for i in range(3)],
        ),
        "huawei2023": write(
            folder / "requests_minute" / "day_000.csv",
            ["day", "time", "0", "1", "2"],
            [[0, 60 * i, f"{i}.0", "", "7"] for i in range(4)],
        ),
        "huawei2023-memory": write(
            folder / "memory_limit_minute" / "day_000.csv",
            ["day", "time", "0", "1", "2"],
            [[0, 60 * i, f"{i}.5", "", "128"] for i in range(4)],
        ),
        "huawei2025": write(
            folder / "part.csv", REQUESTS, [request(requestID=f"r{i}") for i in range(3)]
        ),
        "huawei2025-cold": write(
            folder / "cold.csv",
            COLD_STARTS,
            [cold_start("r1", "pool22-300-128-0000177166", "2.2")],
        ),
    }


def test_every_trace_is_told_from_its_headers(tmp_path: Path) -> None:
    for name, file in samples(tmp_path).items():
        trace = traces.recognise([file])
        assert name.split("-")[0] == trace.NAME
        assert trace.detect([file])
        assert not any(
            other.detect([file]) for other in traces.known().values() if other.NAME != trace.NAME
        )
    assert set(traces.known()) >= {"azure2019", "azure2021", "huawei2023", "huawei2025"}


def test_the_example_of_every_trace_is_imported_and_read_back(tmp_path: Path) -> None:
    files = samples(tmp_path / "in")
    for trace in traces.known().values():
        mine = [file for name, file in files.items() if name.startswith(trace.NAME)]
        if not mine:
            continue  # its own tests import it
        done = traces.load(mine, tmp_path / trace.NAME)
        assert set(done.rows) == set(done.tables) == set(trace.TABLES)
        for table, path in done.tables.items():
            assert path == tmp_path / trace.NAME / f"{table}.parquet"
            back = record.read(tmp_path / trace.NAME, table)
            assert back.num_rows == done.rows[table] > 0
            assert back.schema.equals(record.schema(table), check_metadata=True)
        assert (done.skipped, done.warnings) == (0, []) or trace.NAME == "huawei2023"


def test_folders_and_compressed_files_of_several_days_are_one_trace(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    for day, suffix in ((1, "csv"), (2, "csv.gz")):
        write(
            folder / f"sub{day}" / f"invocations_per_function_md.anon.d{day:02}.{suffix}",
            INVOCATIONS,
            [["o", "a", "f", "http", *counts({1: day})]],
        )
    (folder / ".hidden.csv").write_text("nothing")
    (folder / "about.pdf").write_text("nothing")
    traces.load([folder], tmp_path / "out")
    table = record.read(tmp_path / "out", "arrivals")
    assert table["minute"].to_pylist() == [0, 1440]
    assert table["count"].to_pylist() == [1, 2]


def converted(data: bytes, folder: Path, *, strict: bool = False) -> base.Imported:
    file = folder / "in" / "trace.csv"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return azure2021.convert([file], folder / "out", strict=strict)


GOOD = b"app,func,end_timestamp,duration\na,f,2,1\na,g,5,1\n"


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b"\n", b"\n\n"),
        GOOD + b"\n\n",
        b'"app","func","end_timestamp","duration"\n"a","f","2","1"\na,"g",5,1\n',
        b"duration,end_timestamp,func,app\n1,2,f,a\n1,5,g,a\n",
        gzip.compress(GOOD[:40], mtime=0) + gzip.compress(GOOD[40:], mtime=0),
        GOOD.rstrip(b"\n"),
    ],
    ids=["bom", "crlf", "blank", "blank-end", "quoted", "order", "members", "no-newline"],
)
def test_harmless_differences_are_read(data: bytes, tmp_path: Path) -> None:
    done = converted(data, tmp_path)
    table = record.read(tmp_path / "out")
    assert table["started"].to_pylist() == [10**9, 4 * 10**9]
    assert table["function"].to_pylist() == ["a/f", "a/g"]
    cut = not data.endswith(b"\n") and not data.startswith(b"\x1f\x8b")
    assert [("cut off" in warning) for warning in done.warnings] == [True] * cut


def damaged(data: bytes) -> bytes:
    packed = bytearray(gzip.compress(data, mtime=0))
    packed[-6] ^= 0xFF  # its checksum
    return bytes(packed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"app,func,end_timestamp,duration\n", "trace is empty"),
        (b"app,func,end_timestamp\na,f,1\n", "missing column 'duration'"),
        (GOOD.replace(b"duration", b"Duration_"), "missing column 'duration'.*'Duration_'"),
        (GOOD.replace(b"duration", b"app"), "names 'app' more than once"),
        (b"a,b\n1,2\n", "is no file of the trace"),
        (GOOD.decode().encode("utf-16"), "UTF-16"),
        (b"\x00\x01\x02\xff\n", "not a CSV file"),
        (gzip.compress(GOOD, mtime=0)[:-4], "cut off: .* after 2 whole rows"),
        (gzip.compress(GOOD, mtime=0)[:30], "cut off"),
        (damaged(GOOD), "damaged"),
        (b"\x1f\x8b\x08\x00nonsense", "damaged|cut off"),
        (lzma.compress(GOOD), "compressed with xz"),
        (GOOD + b"a,f\n", "line 4: 'a,f' is not a row of 4 cells: it has 2"),
        (GOOD + b"a,f,1,1,1\n", "line 4: .* has 5"),
        (GOOD + b'"a,b",f,1,1\n', "line 4: .* has 5"),
        (GOOD + b'"a\nb",f,1,1\n', "line 4: "),
        (GOOD + "ä,f,1,1\n".encode(), "line 4: .* is not ASCII text"),
        (GOOD + b"a,f,1\r,1\n", "line 4: .*carriage return"),
        (GOOD + b"a,f,1,\x001\n", "line 4: .*NUL byte"),
    ],
)
def test_a_file_that_cannot_be_believed_is_refused_and_leaves_nothing(
    data: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnciaError, match=message):
        converted(data, tmp_path, strict=True)
    assert left_over(tmp_path) == []


def packed_and_cut(text: bytes, keep: int) -> bytes:
    """gzip data that ends where about ``keep`` bytes of the text can be unpacked."""
    packer = zlib.compressobj(wbits=31)
    whole = packer.compress(text[:keep]) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert len(packer.compress(text[keep:]) + packer.flush()) > 0
    return whole


@pytest.mark.parametrize("block", [50, 1 << 24])
@pytest.mark.parametrize("begun", ["", "a,f9,1"])
def test_of_a_cut_file_nothing_is_taken_unless_asked_for(
    begun: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    rows = [f"a,f{i},{i + 1},1\n" for i in range(40)]
    text = "app,func,end_timestamp,duration\n" + "".join(rows[:25]) + begun
    file = tmp_path / "trace.csv.gz"
    file.write_bytes(packed_and_cut((text + "".join(rows)).encode(), len(text)))
    with pytest.raises(UnciaError, match=r"trace.csv.gz is cut off.*after 25 whole rows") as raised:
        traces.load([file], tmp_path / "out")
    assert "--keep-cut" in str(raised.value.hint)
    assert left_over(tmp_path) == []
    done = traces.load([file], tmp_path / "out", keep_cut=True)
    assert done.noted == {"file cut off: its rows up to the cut were taken": 1}
    assert done.rejected == ({"row cut off": 1} if begun else {})
    assert (done.rows["invocations"], done.read) == (25, 25 + bool(begun))
    assert record.read(tmp_path / "out")["function"].to_pylist() == [f"a/f{i}" for i in range(25)]


@pytest.mark.parametrize("block", [70, 1 << 24])
def test_line_ends_may_be_of_all_kinds(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    ends = ["\n", "\r\n", "\r", "\r\r\n", "\n\r\n", "\n\n"]
    text = "app,func,end_timestamp,duration\r\n"
    text += "".join(f"a,f{i},{i + 1},1{ends[i % len(ends)]}" for i in range(60))
    file = tmp_path / "trace.csv"
    file.write_bytes(text.encode())
    done = azure2021.convert([file], tmp_path / "out")
    assert (done.read, done.rejected) == (60, {})
    assert record.read(tmp_path / "out")["function"].to_pylist() == [f"a/f{i}" for i in range(60)]


def test_columns_may_be_further_but_not_missing(tmp_path: Path) -> None:
    names = [name if name != "runtimeCost" else "run_time_cost" for name in REQUESTS]
    file = write(tmp_path / "renamed.csv", names, [request()])
    message = "missing column 'runtimeCost' .'run_time_cost' is nearest to 'runtimeCost'"
    with pytest.raises(UnciaError, match=message) as raised:
        traces.load([file], tmp_path / "out", trace="Huawei-2025")
    assert "A file of requests has: time_worker" in str(raised.value.hint)
    file = write(tmp_path / "less.csv", REQUESTS[:-1], [request()[:-1]])
    with pytest.raises(UnciaError, match="missing column 'requestBodySize'"):
        traces.load([file], tmp_path / "out")
    order = sorted(range(len(REQUESTS)), key=lambda i: REQUESTS[i])
    file = write(
        tmp_path / "more.csv",
        [*(REQUESTS[i] for i in order), "note"],
        [[*(request()[i] for i in order), "x"]],
    )
    done = traces.load([file], tmp_path / "out")
    assert done.warnings == [f"{file}: further column 'note' not read"]
    row = record.read(tmp_path / "out").to_pylist()[0]
    assert (row["execution"], row["cpu_user"]) == (829_000, 49_579)


def test_the_allocator_of_arrow_is_the_usual_one_again_after_an_import(tmp_path: Path) -> None:
    usual = pa.default_memory_pool().backend_name
    converted(GOOD, tmp_path)
    assert pa.default_memory_pool().backend_name == usual
    with pytest.raises(UnciaError, match="line 4"):
        converted(GOOD + b"a,f\n", tmp_path / "in", strict=True)
    assert pa.default_memory_pool().backend_name == usual


def test_an_option_of_another_trace_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "trace.txt", AZURE2021, ROWS)
    with pytest.raises(UnciaError, match="--max-memory is no option of the trace azure2021"):
        traces.load([file], tmp_path / "out", max_memory=1)


def test_when_no_row_is_good_the_reasons_are_told(tmp_path: Path) -> None:
    file = write(tmp_path / "trace.txt", AZURE2021, [("a", "f", "1", "x"), ("a",), ("b",)])
    with pytest.raises(UnciaError) as raised:
        traces.load([file], tmp_path / "out")
    assert raised.value.message == (
        "no row of the trace is good: 2 broken line: 1 cells instead of 4;"
        " 1 duration: not seconds, 0 or more"
    )
    assert left_over(tmp_path) == []


def test_a_table_of_parts_is_read_as_one(tmp_path: Path) -> None:
    file = write(tmp_path / "trace.txt", AZURE2021, ROWS)
    azure2021.convert([file], tmp_path / "one.parquet")
    table = record.read(tmp_path / "one.parquet")
    folder = tmp_path / "run" / "invocations.parquet"
    for name, first in (("b", 1), ("a", 0)):
        part = folder / f"platform={name}" / "part-0.parquet"
        part.parent.mkdir(parents=True)
        record.write(table.slice(first, 1), part)
    (folder / ".part-0.parquet.crc").write_bytes(b"")
    for path in (tmp_path / "run", folder):
        assert record.read(path).equals(table.slice(0, 2))
    (tmp_path / "empty.parquet").mkdir()
    with pytest.raises(UnciaError, match="folder without a file"):
        record.read(tmp_path / "empty.parquet")


def test_a_line_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 12)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1 << 10)
    with pytest.raises(UnciaError, match="line 1 is longer"):
        converted(b"a" * (1 << 14), tmp_path)
    with pytest.raises(UnciaError, match="line 4 is longer"):
        converted(GOOD + b"a" * (1 << 14), tmp_path)


def test_archives_are_to_be_unpacked_first(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "trace.csv", "w") as archive:
        archive.writestr("trace.csv", GOOD)
    with pytest.raises(UnciaError, match="zip archive") as raised:
        traces.recognise([tmp_path / "trace.csv"])
    assert raised.value.hint == "Unpack it first."


@pytest.mark.parametrize("named", [True, False])
def test_a_file_beside_its_compressed_self_does_not_count_twice(
    named: bool, tmp_path: Path
) -> None:
    file = write(tmp_path / "in" / "trace.txt", AZURE2021, ROWS)
    packed = file.with_name(file.name + ".gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(UnciaError) as raised:
        base.expand([file, packed] if named else [tmp_path / "in"])
    assert str(packed) in raised.value.message
    assert f"and {file.name} beside it" in raised.value.message
    packed.rename(file.with_name("other" + file.name + ".gz"))
    assert len(base.expand([file, file.with_name("other" + file.name + ".gz")])) == 2


def test_files_of_no_trace_of_two_traces_or_named_twice_are_refused(tmp_path: Path) -> None:
    files = samples(tmp_path)
    other = write(tmp_path / "other.csv", ["x", "y"], [[1, 2]])
    with pytest.raises(UnciaError, match="of no trace that Uncia knows"):
        traces.recognise([files["azure2021"], other])
    with pytest.raises(UnciaError, match="of several traces"):
        traces.recognise([files["azure2021"], files["azure2019"]])
    with pytest.raises(UnciaError, match="named twice"):
        traces.recognise([files["azure2021"], files["azure2021"]])
    with pytest.raises(UnciaError, match="does not exist"):
        traces.recognise([tmp_path / "nothing.csv"])
    (tmp_path / "none").mkdir()
    with pytest.raises(UnciaError, match="holds no file"):
        traces.recognise([tmp_path / "none"])
    with pytest.raises(UnciaError, match="no trace 'google'"):
        traces.load([other], tmp_path / "out", trace="google")
    with pytest.raises(UnciaError, match=r"no file of the trace azure2019: .*'x', 'y'"):
        traces.load([other], tmp_path / "out", trace="azure2019")
    assert left_over(tmp_path) == []


def test_a_result_is_never_overwritten_and_several_tables_need_a_folder(tmp_path: Path) -> None:
    files = samples(tmp_path / "in")
    azure2021.convert([files["azure2021"]], tmp_path / "deep" / "er" / "x.parquet")
    before = (tmp_path / "deep" / "er" / "x.parquet").read_bytes()
    with pytest.raises(UnciaError, match="exists already"):
        azure2021.convert([files["azure2021"]], tmp_path / "deep" / "er" / "x.parquet")
    assert (tmp_path / "deep" / "er" / "x.parquet").read_bytes() == before
    with pytest.raises(UnciaError, match="one file, but the trace becomes"):
        traces.load([files["azure2019"], files["azure2019-memory"]], tmp_path / "several.parquet")
    assert not (tmp_path / "several.parquet").exists()
    (tmp_path / "plain").write_text("")
    with pytest.raises(UnciaError, match="cannot write"):
        azure2021.convert([files["azure2021"]], tmp_path / "plain" / "out")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_and_an_interruption_leave_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = samples(tmp_path / "in")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(output.Output, "write", fail)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else UnciaError
    with pytest.raises(expected):
        azure2021.convert([files["azure2021"]], tmp_path / "a" / "b" / "out")
    assert not (tmp_path / "a").exists()


KINDS = sorted(
    [
        "azure2021",
        "azure2019",
        "azure2019-durations",
        "azure2019-memory",
        "huawei2023",
        "huawei2023-memory",
        "huawei2025",
        "huawei2025-cold",
    ]
)


def mutated(data: bytes, seed: int) -> bytes:
    """``data`` with a few bits flipped, bytes cut, repeated or put in, or cells lost."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        if not data:
            break
        at = chance.randrange(len(data))
        match chance.randrange(7):
            case 0:
                data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + data[at : at + 9] + data[at:]
            case 3:
                data = data[:at] + data[at + chance.randint(1, 9) :]
            case 4:
                data = data[:at] + chance.randbytes(chance.randint(1, 3)) + data[at:]
            case 5:
                special = [b",", b"\n", b'"', b"\r", b"\x00", b"e9", b"-", b".", b"nan", b"\xff"]
                data = data[:at] + chance.choice(special) + data[at:]
            case _:
                cells = data.split(b",")
                del cells[chance.randrange(len(cells))]
                data = b",".join(cells)
    return data


@settings(deadline=None, max_examples=50)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    packed=st.booleans(),
    strict=st.booleans(),
    block=st.sampled_from([7, 300, 1 << 24]),
)
def test_a_mutated_file_is_imported_or_refused_whole(
    kind: str,
    seed: int,
    packed: bool,
    strict: bool,
    block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    files = samples(folder / "in")
    file = files[kind]
    data = file.read_bytes()
    file.write_bytes(mutated(gzip.compress(data, mtime=0) if packed else data, seed))
    trace = traces.find(kind.split("-")[0])
    mine = [file, *([files["huawei2025"]] if kind == "huawei2025-cold" else [])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        try:
            done = trace.convert(mine, folder / "out", strict=strict)
        except UnciaError:
            assert left_over(folder) == []
            return
    assert done.skipped == 0 or not strict
    assert done.skipped == sum(done.rejected.values())
    aside = ["out/rejected.csv"] if done.skipped else []
    assert sorted(left_over(folder)) == sorted(
        ["out", *aside, *(f"out/{table}.parquet" for table in done.tables)]
    )
    for table, path in done.tables.items():
        assert record.read(path, table).num_rows == done.rows[table]
    if kind == "azure2021" and not packed and b"\r" not in file.read_bytes():
        # What is accepted is what plain Python reads, too.
        text = folder / "in" / "as-text.csv"
        rows = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
        width = rows[0].count(b",")
        text.write_bytes(
            b"\n".join(
                line for line in rows if not line or (line.isascii() and line.count(b",") == width)
            )
        )
        if b'"' in text.read_bytes() or b"\x00" in text.read_bytes():
            return
        expected = [(row["started"], row["function"]) for row in oracle.azure2021([text])]
        table = record.read(done.tables["invocations"])
        result = zip(table["started"].to_pylist(), table["function"].to_pylist(), strict=True)
        assert list(result) == expected


@settings(deadline=None, max_examples=60)
@given(data=st.binary(max_size=300), header=st.booleans(), strict=st.booleans())
def test_random_bytes_are_refused(
    data: bytes, header: bool, strict: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    with pytest.raises(UnciaError):
        converted((GOOD[:32] if header else b"") + data, folder, strict=strict)
    assert left_over(folder) == []


@pytest.mark.parametrize("many", [3, 30])
def test_rows_that_merge_across_nul_bytes_are_bad(tmp_path: Path, many: int) -> None:
    """A hole in a file joins the ends of two rows to one with as many cells as any."""
    file = tmp_path / "trace.txt"
    good = [f"a,f{i},{i}.5,0.25" for i in range(many)]
    start = "a,f"
    hole = start + "\0" * 4096 + "g,7.5,0.25"
    file.write_text("\n".join(["app,func,end_timestamp,duration", *good, hole, *good, ""]))
    done = traces.load([file], tmp_path / "out")
    assert done.rows["invocations"] == 2 * many
    assert done.rejected == {"broken line: a NUL byte within": 1}
    with pytest.raises(UnciaError, match=rf"line {many + 2}.*NUL"):
        traces.load([file], tmp_path / "strict", strict=True)
