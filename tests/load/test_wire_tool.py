"""The judge of arrivals, benches/load/wire.py, on arrivals whose errors are known."""

import importlib.util
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NS_PER_S = 1_000_000_000
START = 1_700_000_000 * NS_PER_S
TOOL = Path(__file__).parents[2] / "benches" / "load" / "wire.py"


@pytest.fixture(scope="module")
def wire() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wire_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _write(path: Path, kernel: np.ndarray, read: np.ndarray) -> Path:
    rows = zip(kernel.tolist(), read.tolist(), strict=True)
    path.write_text(
        "kernel_ns,read_ns,connection\n" + "".join(f"{k},{r},{k % 3}\n" for k, r in rows)
    )
    return path


def test_constant_schedule(wire: ModuleType) -> None:
    assert wire.constant(Fraction(4), NS_PER_S).tolist() == [0, 250000000, 500000000, 750000000]
    thirds = wire.constant(Fraction(3), NS_PER_S + 1)
    assert thirds.tolist() == [0, 333333333, 666666666, 1000000000]
    assert wire.constant(Fraction(1, 2), 3 * NS_PER_S).tolist() == [0, 2 * NS_PER_S]


def test_jitter_of_known_size(wire: ModuleType, tmp_path: Path) -> None:
    schedule = wire.constant(Fraction(5000), 2 * NS_PER_S)
    # 1 % of the requests is 90 us late, 10 % are 20 us early, nobody's median moves.
    late = np.zeros(schedule.size, dtype=np.int64)
    late[::100] = 90_000
    late[5::10] = -20_000
    arrivals = START + schedule + late
    log = wire.read_log(_write(tmp_path / "log.csv", arrivals, arrivals + 7_000))
    assert log.connections == 3
    result = wire.timing(log, schedule)
    assert (result.asked, result.arrived, result.missing, result.extra) == (10_000, 10_000, 0, 0)
    # A constant delay of the server's clock is no error.
    expected = {"p50": 0.0, "p90": 20.0, "p99": 20.0, "p999": 90.0, "max": 90.0}
    assert result.errors_us == {"kernel": expected, "read": expected}
    assert result.rate == pytest.approx(5000, rel=1e-3)


def test_a_late_start_is_not_hidden(wire: ModuleType) -> None:
    schedule = wire.constant(Fraction(1000), NS_PER_S)
    arrivals = START + schedule
    arrivals[:30] = arrivals[29]
    assert wire.errors(arrivals, schedule).max() == 29_000_000


@pytest.mark.parametrize("seed", range(4))
def test_lost_requests_do_not_shift_the_others(wire: ModuleType, seed: int) -> None:
    random = np.random.default_rng(seed)
    schedule = wire.constant(Fraction(2000), NS_PER_S)
    jitter = random.integers(-9_000, 9_001, schedule.size)
    lost = random.choice(schedule.size, 25, replace=False)
    arrivals = np.delete(START + schedule + jitter, lost)
    result = wire.timing(wire.Log(arrivals, arrivals, 1), schedule)
    assert (result.arrived, result.missing, result.extra) == (1_975, 25, 0)
    assert result.errors_us["kernel"]["max"] <= 19
    # Paired by number, without a thought for the lost ones, the errors would be whole periods.
    by_number = arrivals - START - schedule[: arrivals.size]
    assert np.quantile(np.abs(by_number - np.median(by_number)), 0.9) > 1_000_000


def test_lost_requests_of_a_long_run(wire: ModuleType) -> None:
    schedule = wire.constant(Fraction(5000), 3 * NS_PER_S)
    assert schedule.size > wire.MANY
    jitter = np.random.default_rng(5).integers(-9_000, 9_001, schedule.size)
    arrivals = np.delete(START + schedule + jitter, [0, 2_000, 9_001, 14_000])
    result = wire.timing(wire.Log(arrivals, arrivals, 1), schedule)
    assert result.missing == 4
    assert result.errors_us["kernel"]["max"] <= 19


def test_requests_cut_off_at_the_end(wire: ModuleType) -> None:
    schedule = wire.constant(Fraction(5000), NS_PER_S)
    arrivals = (START + schedule)[:-40]
    result = wire.timing(wire.Log(arrivals, arrivals, 1), schedule)
    assert result.missing == 40
    assert result.errors_us["kernel"]["max"] == 0


def test_surplus_requests(wire: ModuleType) -> None:
    schedule = np.sort(np.random.default_rng(3).integers(0, NS_PER_S, 2_000))
    arrivals = np.sort(np.concatenate([START + schedule, START + schedule[::400] + 1]))
    result = wire.timing(wire.Log(None, arrivals, 1), schedule)
    assert (result.missing, result.extra) == (0, 5)
    assert result.errors_us["read"]["max"] <= 0.001
    assert "kernel" not in result.errors_us


def test_too_many_missing_gives_no_errors(wire: ModuleType) -> None:
    schedule = wire.constant(Fraction(5000), NS_PER_S)
    arrivals = START + schedule[::2]
    result = wire.timing(wire.Log(arrivals, arrivals, 1), schedule)
    assert result.missing == 2_500
    assert result.errors_us == {}
    assert "no errors" in wire.lines(result)[-1]


def test_the_command(tmp_path: Path) -> None:
    schedule = np.array([0, 1_000, 5_000_000, 70_000_000], dtype=np.int64)
    pq.write_table(pa.table({"scheduled": schedule}), tmp_path / "schedule.parquet")
    log = _write(tmp_path / "log.csv", START + schedule, START + schedule)
    command = [sys.executable, str(TOOL), str(log)]
    ran = subprocess.run(
        [*command, "--schedule", str(tmp_path / "schedule.parquet"), "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(ran.stdout)["errors_us"]["kernel"]["max"] == 0
    for wrong in ([], ["--rate", "5"], ["--rate", "0", "--seconds", "1"]):
        assert subprocess.run([*command, *wrong], capture_output=True, check=False).returncode == 2


def test_a_file_that_is_no_log(wire: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="not a log of wire record"):
        wire.read_log(tmp_path / "log.csv")
