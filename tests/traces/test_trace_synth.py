"""Synthetic traces: the same bytes again, read by the readers, and as the paper describes the real.

The statistics are computed here from the raw files, by pandas and numpy in floating point, as the
cost paper's notebooks do; nothing of Uncia takes part.
"""

from __future__ import annotations

import gzip
import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from uncia import traces
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.traces import synth

KINDS = ("huawei2025", "huawei2023", "azure2019", "azure2021", "ibm2026", "aws-logs", "gcp-logs")
ALL = 947_970_744


def contents(folder: Path) -> dict[str, str]:
    """The files of a folder, by their digests."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def imported(kind: str, trace: Path, out: Path) -> traces.Imported:
    """An import that ends at a bad row; pods above 10,240 MB are none."""
    convert: Callable[..., traces.Imported] = traces.find(kind).convert
    options = inspect.signature(convert).parameters
    large = {"max_memory": 1 << 40} if "max_memory" in options else {}
    return convert([trace], out, strict=True, **large)


ROWS = 300_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of requests of all regions."""
    folder = tmp_path_factory.mktemp("many") / "trace"
    synth.make("huawei2025", ROWS, folder, seed=2)
    return folder


@pytest.fixture(scope="module")
def many(folder: Path) -> pd.DataFrame:
    """Its requests, as pandas reads them."""
    parts = []
    for file in sorted(folder.glob("R*/requests_*.csv")):
        part = pd.read_csv(file)
        part["region"] = file.parent.name
        parts.append(part)
    rows = pd.concat(parts, ignore_index=True)
    sizes = rows["podID"].str.extract(r"(?:.+)-(\d+)-(\d+)-.+").astype(float)
    rows["cores"], rows["megabytes"] = sizes[0] / 1000, sizes[1]
    # In whole microseconds, because the product of the decimal fraction with 1000 is often off.
    rows["ms"] = (rows["runtimeCost"] * 1e6).round() / 1000
    return rows


def kept(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that the notebooks keep."""
    return rows.dropna()[lambda found: found["megabytes"] <= 10_240]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_order_is_the_same_bytes(kind: str, tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        synth.make(kind, 250, tmp_path / name, seed=seed, malformed=0.02, gzip=True)
    first, again, other = (contents(tmp_path / name) for name in "abc")
    assert first == again
    same = {name for name, digest in other.items() if first.get(name) == digest}
    assert same <= {"services.json.gz"}  # allocations are no matter of chance


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_trace_is_imported_without_a_bad_row(kind: str, tmp_path: Path) -> None:
    if kind not in traces.known():
        pytest.skip(f"no reader of {kind}")
    made = synth.make(kind, 300, tmp_path / "trace", seed=2)
    done = imported(kind, tmp_path / "trace", tmp_path / "out")
    assert done.skipped == 0
    assert made.planted == {}
    if "invocations" in done.rows:
        assert done.rows["invocations"] == 300


def test_names_of_kinds_are_matched_loosely_and_others_refused(tmp_path: Path) -> None:
    assert synth.find("AWS_Logs").KIND == "aws-logs"
    assert set(synth.known()) == set(KINDS)
    assert not set(traces.known()) & {"synth"}
    with pytest.raises(UnciaError, match="no synthetic trace 'aws'"):
        synth.make("aws", 10, tmp_path / "x")


@pytest.mark.parametrize("rows", [1, 999])
def test_there_are_as_many_rows_as_were_asked_for(rows: int, tmp_path: Path) -> None:
    made = synth.make("huawei2025", rows, tmp_path, files=3)
    requests = [file for file in made.files if "requests" in file.path]
    assert sum(file.rows for file in requests) == rows
    for file in made.files:
        assert len((tmp_path / file.path).read_text().splitlines()) == file.rows + 1


def test_more_rows_begin_with_fewer_however_they_are_divided(tmp_path: Path) -> None:
    few = synth.make("huawei2025", 900, tmp_path / "few", seed=9)
    synth.make("huawei2025", 2_000, tmp_path / "more", seed=9, files=4, gzip=True)
    for region in ("R1", "R2", "R3", "R4", "R5"):
        for table in ("requests", "cold_starts"):
            parts = (tmp_path / "more" / region).glob(f"{table}_*.csv.gz")
            more = [gzip.decompress(part.read_bytes()).splitlines() for part in sorted(parts)]
            whole = [line for lines in more for line in lines[1:]]
            for file in few.files:
                if file.path == f"{region}/{table}_0.csv":
                    lines = (tmp_path / "few" / file.path).read_bytes().splitlines()[1:]
                    assert whole[: len(lines)] == lines


def test_the_parquet_table_is_what_an_import_of_the_files_gives(tmp_path: Path) -> None:
    rows = 4_000
    synth.make("huawei2025", rows, tmp_path / "files", seed=4)
    made = synth.make("huawei2025", rows, tmp_path / "table", seed=4, parquet=True)
    imported("huawei2025", tmp_path / "files", tmp_path / "imported")
    table = pq.read_table(tmp_path / "table" / "invocations.parquet").sort_by("invocation")
    read = pq.read_table(tmp_path / "imported" / "invocations.parquet").sort_by("invocation")
    assert table.schema.equals(read.schema, check_metadata=True)
    for column in read.schema.names:
        assert table[column].to_pylist() == read[column].to_pylist(), column
    assert table["initialization"].null_count < rows, "no cold start was marked"
    assert sum(file.rows for file in made.files) == rows


def test_processes_make_what_one_makes(tmp_path: Path) -> None:
    for jobs in (1, 2):
        synth.make("huawei2025", 400, tmp_path / f"{jobs}", seed=3, parquet=True, jobs=jobs)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


# What the paper and its notebooks print of the real trace: value, and how far off 300,000 synthetic
# rows may be (of which about 1% is chance).
def within(value: float, target: float, share: float) -> None:
    assert abs(value / target - 1) <= share, (
        f"{value} instead of {target}: {value / target - 1:+.2%}"
    )


def test_regions_and_missing_data_are_as_published(many: pd.DataFrame) -> None:
    raw = {"R1": 364_210_340, "R2": 321_345_210, "R3": 192_197_138, "R4": 66_769_797}
    for region, count in raw.items():
        within((many["region"] == region).mean(), count / ALL, 0.001)
    lost = many.drop(columns=["cores", "megabytes"]).isna().any(axis=1)
    within(lost[many["region"] == "R3"].mean(), 148_082_665 / 192_197_138, 0.02)
    within(lost[many["region"] == "R4"].mean(), 2_388_676 / 66_769_797, 0.1)
    assert lost[many["region"] == "R1"].mean() < 0.0005
    large = many["megabytes"] > 10_240
    assert set(many.loc[large, "region"]) == {"R2"}
    within(large[many["region"] == "R2"].mean(), 2_784_182 / 321_345_210, 0.1)
    usable = kept(many)
    within((usable["cpu_usage"] * usable["ms"] == 0).mean(), 235_263_649 / 793_999_482, 0.01)
    within((many["cpu_usage"] * many["ms"] != 0).mean(), 587_610_349 / ALL, 0.01)


def test_execution_times_and_their_rounding_are_as_published(many: pd.DataFrame) -> None:
    gb_seconds = many["memory_usage"] / 1024 * many["ms"] / 1000
    within(many["ms"].mean(), 58.19, 0.03)
    within(gb_seconds.mean(), 0.02746200304839938, 0.03)
    within((many["ms"] >= 1).mean(), 527_054_654 / ALL, 0.01)
    some = many[many["ms"] >= 1]
    ms = some["ms"]
    billed = np.where(ms < 100, 100, np.ceil(ms))
    within((100 * np.ceil(ms / 100) - ms).mean(), 77.118, 0.01)
    within((billed - ms).mean(), 61.350, 0.01)
    units = 128 * np.ceil(some["memory_usage"] / 128)
    rounded = (units * billed - some["memory_usage"] * ms) / 1024 / 1000
    within(rounded.mean(), 0.02669, 0.03)


def test_utilisation_is_as_published(many: pd.DataFrame) -> None:
    rows = kept(many)[lambda found: found["cpu_usage"] * found["ms"] != 0]
    cpu, memory = rows["cpu_usage"] / rows["cores"], rows["memory_usage"] / rows["megabytes"]
    assert cpu.between(0, 1).all()
    assert memory.between(0, 1).all()
    within((cpu < 0.49951).mean(), 0.656, 0.01)
    within((memory < 0.499359313375).mean(), 0.76, 0.01)
    within(float(np.corrcoef(cpu, memory)[0, 1]), 0.552, 0.02)
    within(float(np.corrcoef(cpu.rank(), memory.rank())[0, 1]), 0.565, 0.02)
    within((rows["cpu_usage"] * rows["ms"]).mean(), 51.765, 0.03)


def test_inflation_is_as_published(many: pd.DataFrame) -> None:
    rows = kept(many)[lambda found: found["cpu_usage"] * found["ms"] != 0]
    e, c, m, u = rows["ms"], rows["cores"], rows["megabytes"], rows["memory_usage"]
    used_cpu, used_memory = rows["cpu_usage"] * e, u * e
    sizes = rows[["cores", "megabytes"]].drop_duplicates()
    ratio = (1000 * sizes["cores"] / sizes["megabytes"]).mean()
    cores = np.maximum(ratio * m / 1000, c)
    aws_memory = np.where(ratio * m / 1000 < c, 1000 * cores / ratio, m)
    azure = np.where(e < 100, 100, np.ceil(e))
    hundreds = 100 * np.ceil(e / 100)
    for cpu, memory, published in (
        (c * np.ceil(e), m * np.ceil(e), (2.145263296495705, 2.6088776939483993)),
        (cores * np.ceil(e), aws_memory * np.ceil(e), (2.491895006337562, 2.7159686829558014)),
        (c * hundreds, m * hundreds, (3.6259408698146585, 4.350769451586825)),
        (c * azure, 128 * np.ceil(u / 128) * azure, (3.445964353693007, 1.571093104636354)),
    ):
        within(cpu.sum() / used_cpu.sum(), published[0], 0.02)
        within(memory.sum() / used_memory.sum(), published[1], 0.02)
    within(np.ceil(used_cpu).sum() / used_cpu.sum(), 1.0098841505130247, 0.002)


def test_cold_starts_are_as_published_and_some_pods_are_in_two_regions(
    folder: Path, many: pd.DataFrame
) -> None:
    starts, pods, matched, outweighed, most = 0, [], 0, 0, 0
    for region in ("R1", "R2", "R3", "R4", "R5"):
        requests = many[many["region"] == region]
        cold = pd.concat(map(pd.read_csv, sorted((folder / region).glob("cold_starts_*.csv"))))
        parts = ["podAllocationCost", "deployCodeCost", "deployDependencyCost", "schedulingCost"]
        assert np.allclose(cold[parts].sum(axis=1), cold["totalCost_cold_start"])
        assert cold["day"].between(0, 30).all()
        assert (cold["time"] // 86_400 == cold["day"]).all()
        served = requests.groupby("podID")["runtimeCost"].sum()
        ours = cold[cold["podID"].isin(served.index)]
        work = served.reindex(ours["podID"]).to_numpy()
        work = work - ours["deployCodeCost"] - ours["deployDependencyCost"]
        starts, matched = starts + len(cold), matched + len(ours)
        outweighed += int((work <= 0).sum())
        pods.append(set(served.index))
        # A pod serves nothing before it is there.
        born = ours[ours["day"] == 30].set_index("podID")
        mine = requests[requests["podID"].isin(born.index)]
        ready = born["time"] + born["totalCost_cold_start"]
        ready = ready.reindex(mine["podID"]).to_numpy()
        assert (mine["time_worker"] - mine["runtimeCost"] >= ready - 0.002).all()
        most = max([most, *mine["podID"].value_counts()])
        caused = born[born["requestID"].isin(mine["requestID"])]
        if region != "R3":  # most of whose requests have no pod
            assert len(caused) >= 0.7 * len(born) - 1
    assert most > 100
    within(starts / ROWS, 11_913_857 / ALL, 0.05)
    within(matched / ROWS, 388_955 / ALL, 0.2)
    within(outweighed / matched, 0.421, 0.3)
    assert pods[0] & pods[1]


def test_spoiled_lines_are_where_the_account_says(tmp_path: Path) -> None:
    made = synth.make("huawei2025", 3_000, tmp_path / "bad", seed=4, malformed=0.05)
    clean = synth.make("huawei2025", 3_000, tmp_path / "clean", seed=4)
    account = json.loads((tmp_path / "bad" / "planted.json").read_text())
    assert account["planted"] == made.planted
    assert len(made.planted) == 11
    assert 100 < sum(made.planted.values()) < 200
    counted: Counter[str] = Counter()
    for file in account["files"]:
        lines = (tmp_path / "bad" / file["path"]).read_bytes().split(b"\n")
        sound = (tmp_path / "clean" / file["path"]).read_bytes().split(b"\n")
        assert len(lines) == len(sound)
        where = {line: kind for kind, some in file["planted"].items() for line in some}
        assert {i + 1 for i in range(len(lines)) if lines[i] != sound[i]} == set(where)
        counted.update(where.values())
        for line, kind in where.items():
            cells = lines[line - 1].split(b",")
            assert (len(cells) != 18) == (kind in ("too_few_cells", "too_many_cells"))
            assert lines[line - 1].endswith(b"\r") == (kind == "crlf")
    assert dict(counted) == made.planted
    assert clean.natural == made.natural


def test_an_import_leaves_out_the_spoiled_rows_alone(tmp_path: Path) -> None:
    made = synth.make("azure2021", 4_000, tmp_path / "trace", seed=4, malformed=0.05)
    done = traces.load([tmp_path / "trace"], tmp_path / "out", trace="azure2021", strict=False)
    assert made.planted["crlf"] > 0
    bad = sum(made.planted.values()) - made.planted["crlf"]
    assert done.skipped == bad
    assert done.rows["invocations"] == 4_000 - bad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "--rows 0"),
        ({"rows": 5, "malformed": 1.5}, "--malformed 1.5"),
        ({"rows": 5, "files": 0}, "--files 0"),
        ({"rows": 5, "seed": -1}, "--seed -1"),
        ({"rows": 5, "parquet": True, "gzip": True}, "clean table"),
    ],
)
def test_what_cannot_be_made_is_said(
    arguments: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnciaError, match=message):
        synth.make("huawei2025", out=tmp_path / "x", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


def test_nothing_is_overwritten_and_other_kinds_have_no_table(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UnciaError, match="exists already"):
        synth.make("azure2021", 10, tmp_path)
    with pytest.raises(UnciaError, match="not for azure2021"):
        synth.make("azure2021", 10, tmp_path / "new", parquet=True)


def test_nothing_is_left_of_what_failed(tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="do not fit into 1 files"):
        synth.make("huawei2023", 1_441, tmp_path / "new", files=1)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    app = build()
    out = tmp_path / "trace"
    arguments = ["trace", "synth", "Azure-2021", "--rows", "50", "--seed", "2"]
    arguments += ["--out", str(out), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (name,) = json.loads(result.output)["files"]
    assert len((out / name).read_text().splitlines()) == 51
    result = CliRunner().invoke(app, [*arguments[:-2], str(tmp_path / "b"), "--gzip"])
    assert "50 rows" in result.output
