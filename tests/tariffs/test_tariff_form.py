"""What a mistake in a tariff file is told as: file, line, key, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from uncia.cli import build
from uncia.errors import UnciaError
from uncia.tariffs import Tariff, read
from uncia.tariffs.rules import AMOUNT_KEYS

DATA = Path(__file__).resolve().parents[1] / "data" / "tariffs"
GOOD = (DATA / "own-cloud.yaml").read_text(encoding="utf-8")


def error_message(path: Path, old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    file = path / "own.yaml"
    file.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(UnciaError) as caught:
        read(file)
    return caught.value.message.replace(f"{path}/", "")


def line_of(text: str) -> int:
    return 1 + GOOD[: GOOD.index(text)].count("\n")


def test_the_good_file_is_good() -> None:
    assert read(DATA / "own-cloud.yaml").id == "own-cloud"


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("as_of:", "asof:", "asof", "unknown key, did you mean as_of? (allowed: id, provider"),
        ("as_of: 2025-11-01", "as_of: yesterday", "as_of", "'yesterday' is not a date"),
        ("id: own-cloud", "id: Own Cloud", "id", "must match pattern"),
        ("currency: USD", "currency: EUR", "currency", "'EUR' is not known (allowed: USD)"),
        (
            'price: "0.00002"',
            "price: 0.00002",
            "charges[0].price",
            'a price is decimal text in quotes, for example "0.0000166667"; 2e-05 is not text',
        ),
        ('price: "0.00002"', 'price: "2e-5"', "charges[0].price", "'2e-5' is no price"),
        ('price: "0.00002"', 'price: "-1"', "charges[0].price", "'-1' is no price"),
        ('price: "0.00002"', 'price: "1,5"', "charges[0].price", "'1,5' is no price"),
        (
            "per: vCPU-second",
            "per: GB-second",
            "charges[0].per",
            "cpu is priced per vCPU-second or vCPU-hour",
        ),
        (
            "per: vCPU-second",
            "per: vCPU-secnd",
            "charges[0].per",
            "'vCPU-secnd' is not known, did you mean vCPU-second? (allowed: vCPU-second,",
        ),
        (
            "granularity: 10 ms",
            "granularity: 10",
            "time.granularity",
            "10 has no unit: a duration is written with one of ns, us, ms, s, min, h",
        ),
        ("granularity: 10 ms", "granularity: 0 ms", "time.granularity", "must be above zero"),
        ("granularity: 10 ms", "granularity: 10 MB", "time.granularity", "is not a duration"),
        (
            "kind: turnaround",
            "kind: turnarond",
            "time.kind",
            "'turnarond' is not known, did you mean turnaround?"
            " (allowed: execution, turnaround, instance, cpu)",
        ),
        (
            "granularity: 128 MB",
            "granularity: 128 ms",
            "charges[1].granularity",
            "is not a size",
        ),
        (
            "basis: used",
            "basis: borrowed",
            "charges[1].basis",
            "memory is billed as allocated, used or lent, not as borrowed",
        ),
        ("basis: used", "basis: usd", "charges[1].basis", "did you mean used?"),
        (
            "resource: memory",
            "resource: gpu",
            "charges[1].resource",
            "'gpu' is not known (allowed: cpu, memory, storage, instance)",
        ),
        (
            "kind: independent",
            "kind: free",
            "sizes.kind",
            "'free' is not known (allowed: observed, proportional, fixed, combinations,"
            " independent)",
        ),
        (
            "step: 0.5 vCPU",
            "step: 0.3 vCPU",
            "sizes.cpu",
            "minimum 0.5vCPU is not a whole number of steps of 0.3vCPU",
        ),
        (
            "minimum: 128 MB\n    maximum: 8 GB",
            "minimum: 9 GB\n    maximum: 8 GB",
            "sizes.memory",
            "minimum 9GB is above maximum 8GB",
        ),
        ("step: 64 MB", "step: 64 MB\n    setp: 1 MB", "sizes.memory.setp", "did you mean step?"),
        (
            "source: manual\n\nfee:",
            "source: manaul\n\nfee:",
            "charges[1].source",
            "the source 'manaul' is not listed under sources (allowed: manual, prices)",
        ),
        ("fee:\n", "fees:\n", "fees", "unknown key, did you mean fee?"),
        (
            "time:\n",
            "time:\n  maximum:\n",
            "time.maximum",
            "unknown key: a time has no maximum, which is a rule of amounts: write it under charges"
            " (the longest execution that the platform allows stands under limits)",
        ),
        ("requests: 1000", "requests: many", "free_tier.requests", "must be a valid integer"),
        ("requests: 1000", "requests: -1", "free_tier.requests", "greater than or equal to 0"),
        ("step: 64 MB", "step: 0 MB", "sizes.memory", "a step must be above zero"),
        (
            "step: 64 MB",
            "step: 64 MB\n    values: [10 GB, 9 GB]",
            "sizes.memory",
            "values must rise, each once",
        ),
        (
            "maximum: 8 GB\n    step: 64 MB",
            "step: 64 MB\n    values: [10 GB]",
            "sizes.memory",
            "values above the steps need a maximum, where the steps end",
        ),
        (
            "step: 64 MB",
            "step: 64 MB\n    values: [8 GB]",
            "sizes.memory",
            "values must lie above the steps, which end at 8GB",
        ),
        (
            "step: 64 MB",
            "step: 64 MB\n  cpu_minimum:\n    - {memory_above: 4 GB, cpu: 2 vCPU}\n"
            "    - {memory_above: 4 GB, cpu: 3 vCPU}",
            "sizes.cpu_minimum",
            "memory and vCPU must rise from step to step",
        ),
        (
            "step: 64 MB",
            "step: 64 MB\n  cpu_default:\n    - {memory_up_to: 4 GB, cpu: 2 vCPU}\n"
            "    - {memory_up_to: 8 GB, cpu: 2 vCPU}",
            "sizes.cpu_default",
            "memory and vCPU must rise from step to step",
        ),
        (
            "step: 64 MB",
            "step: 64 MB\n  memory_per_vcpu: {minimum: 2 GB, maximum: 1 GB}",
            "sizes.memory_per_vcpu",
            "minimum must be above zero, maximum not below it and at most 4 GB",
        ),
        (
            "minimum: 20 ms",
            "minimum: 20 ms\n  minimum_for: all",
            "time.minimum_for",
            "only over instance time can a minimum be for all together",
        ),
        (
            "minimum: 20 ms",
            "minimum_for: all",
            "time.minimum_for",
            "there is no minimum that could be for all",
        ),
        (
            "basis: used",
            "basis: used\n    amount: 1 GB",
            "charges[1].amount",
            "only storage has a fixed amount",
        ),
        (
            "resource: memory",
            "resource: storage",
            "charges[1].basis",
            "storage is billed as allocated, not as used",
        ),
    ],
)
def test_a_mistake_names_its_line_and_key(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    text = error_message(tmp_path, old, new)
    assert message in text
    first = line_of(old)
    last = first + max(old.count("\n"), new.count("\n")) + 1
    numbers = [int(part.split(":")[1]) for part in text.splitlines() if f": {key}: " in part]
    assert numbers, text
    # Where a check spans several keys, the line is that of the mapping above them.
    assert any(first - 3 <= number <= last for number in numbers), text


def test_a_missing_key_is_told(tmp_path: Path) -> None:
    text = error_message(tmp_path, "provider: Us\n", "")
    assert text == "own.yaml:1: provider: the key provider is missing"


def test_a_fixed_size_must_name_what_is_charged(tmp_path: Path) -> None:
    sizes = GOOD[GOOD.index("sizes:") : GOOD.index("free_tier:")]
    fixed = "sizes:\n  kind: fixed\n  cpu: null\n  memory: 1 GB\n  source: manual\n\n"
    assert "allocated cpu is charged" in error_message(tmp_path, sizes, fixed)


def test_a_fixed_size_must_name_its_memory_too(tmp_path: Path) -> None:
    sizes = GOOD[GOOD.index("sizes:") : GOOD.index("free_tier:")]
    fixed = "sizes:\n  kind: fixed\n  cpu: 1 vCPU\n  memory: null\n  source: manual\n\n"
    file = tmp_path / "own.yaml"
    file.write_text(GOOD.replace(sizes, fixed).replace("basis: used", "basis: allocated"))
    with pytest.raises(UnciaError, match="allocated memory is charged, so the fixed size must"):
        read(file)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "  cpu_default:\n    - {memory_up_to: 4 GB, cpu: 2 vCPU}\n"
            "  memory_per_vcpu: {minimum: 1 GB, maximum: 4 GB}",
            "cpu_default and memory_per_vcpu exclude each other",
        ),
        (
            "    values: [10 GB]\n  memory_per_vcpu: {minimum: 1 GB, maximum: 4 GB}",
            "memory_per_vcpu needs knobs with steps and a smallest vCPU",
        ),
        (
            "  memory_per_vcpu: {minimum: 1 GB, maximum: 1 GB}",
            "memory_per_vcpu leaves no size at the smallest vCPU",
        ),
    ],
)
def test_a_ratio_of_memory_to_vcpu_can_be_met(tmp_path: Path, more: str, message: str) -> None:
    assert f": sizes: {message}" in error_message(tmp_path, "step: 64 MB", f"step: 64 MB\n{more}")


@pytest.mark.parametrize(
    ("ratio", "step", "key", "message"),
    [
        ("5 GB", "64 MB", "memory_per_vcpu", "must be above zero and at most 4 GB"),
        ("0 GB", "64 MB", "memory_per_vcpu", "must be above zero and at most 4 GB"),
        ("1769 MB", "65 GB", "memory", "a step is at most 64 GB"),
    ],
)
def test_a_share_of_memory_is_one_that_can_be_computed(
    tmp_path: Path, ratio: str, step: str, key: str, message: str
) -> None:
    sizes = GOOD[GOOD.index("sizes:") : GOOD.index("free_tier:")]
    proportional = (
        f"sizes:\n  kind: proportional\n  memory_per_vcpu: {ratio}\n"
        f"  memory:\n    step: {step}\n  source: manual\n\n"
    )
    assert f": sizes.{key}: {message}" in error_message(tmp_path, sizes, proportional)


def test_an_instance_is_billed_whole(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    memory = GOOD[GOOD.index("  - resource: memory") : GOOD.index("fee:")]
    instance = (
        '  - resource: instance\n    basis: allocated\n    price: "0.01"\n'
        "    per: instance-hour\n    granularity: 1 GB\n    source: prices\n\n"
    )
    file.write_text(GOOD.replace(memory, instance).replace("kind: turnaround", "kind: instance"))
    with pytest.raises(UnciaError, match=r"charges\[1\]\.granularity: an instance is billed whole"):
        read(file)


def test_storage_is_only_billed_over_instance_time(tmp_path: Path) -> None:
    memory = "resource: memory\n    basis: used"
    text = error_message(tmp_path, memory, "resource: storage\n    basis: allocated")
    line = line_of("charges:")
    assert text == f"own.yaml:{line}: charges: storage is only billed over instance time"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("[{memory: 2 GB, cpu: 1 vCPU}, {memory: 1 GB, cpu: 2 vCPU}]", "must rise by memory"),
        ("[{memory: 1 GB, cpu: 1 vCPU}, {memory: 1 GB, cpu: 1 vCPU}]", "each once"),
        ("[{memory: 1 GB, cpu: null}, {memory: 2 GB, cpu: 1 vCPU}]", "either all combinations"),
        ("[]", "needs at least 1, not 0"),
    ],
)
def test_combinations_rise_and_are_of_a_kind(tmp_path: Path, pairs: str, message: str) -> None:
    sizes = GOOD[GOOD.index("sizes:") : GOOD.index("free_tier:")]
    combinations = f"sizes:\n  kind: combinations\n  combinations: {pairs}\n  source: manual\n\n"
    text = error_message(tmp_path, sizes, combinations)
    assert f"own.yaml:{line_of('sizes:') + 2}: sizes.combinations: " in text
    assert message in text


def test_over_cpu_time_rules_stand_under_time(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    charges = GOOD[GOOD.index("charges:") : GOOD.index("fee:")]
    used = (
        'charges:\n  - resource: cpu\n    basis: used\n    price: "0.00002"\n'
        "    per: vCPU-second\n    granularity: 1 ms\n    source: prices\n\n"
    )
    file.write_text(GOOD.replace(charges, used).replace("kind: turnaround", "kind: cpu"))
    with pytest.raises(UnciaError, match="over CPU time, granularity and minimum stand under time"):
        read(file)


def test_cpu_time_can_only_bill_cpu_used(tmp_path: Path) -> None:
    text = error_message(tmp_path, "kind: turnaround", "kind: cpu")
    assert "charges: over CPU time, only CPU used can be billed" in text


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        GOOD.replace("currency: USD", "currency: EUR").replace("kind: turnaround", "kind: never"),
        encoding="utf-8",
    )
    with pytest.raises(UnciaError) as caught:
        read(file)
    lines = caught.value.message.splitlines()
    assert len(lines) == 2
    assert "currency" in lines[0]
    assert "time.kind" in lines[1]


def test_the_form_has_a_json_schema() -> None:
    schema = Tariff.model_json_schema()
    assert schema["additionalProperties"] is False
    assert {"id", "charges", "sizes", "sources"} <= set(schema["required"])


def with_rules(**rules: str) -> str:
    """The good file with rules of the memory's amount."""
    memory = GOOD[GOOD.index("  - resource: memory") : GOOD.index("fee:")]
    lines = [line for line in memory.splitlines() if line.strip().split(":")[0] not in AMOUNT_KEYS]
    place = next(index for index, line in enumerate(lines) if "per: " in line) + 1
    lines[place:place] = [f"    {key}: {bound}" for key, bound in rules.items()]
    return GOOD.replace(memory, "\n".join(lines) + "\n")


def test_a_maximum_is_not_below_what_is_billed_at_least(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(with_rules(minimum="2 GB", maximum="1536 MB"), encoding="utf-8")
    with pytest.raises(UnciaError) as caught:
        read(file)
    line = file.read_text().splitlines().index("    maximum: 1536 MB") + 1
    assert caught.value.message == (
        f"{file}:{line}: charges[1].maximum: the maximum 1536 MB is below what is billed at least"
        " (2 GB), so that every amount would be billed alike"
    )
    # What is free is taken off before the maximum.
    for rules in ({"minimum": "2 GB", "free": "1 GB"}, {"minimum": "1536 MB"}, {}):
        file.write_text(with_rules(maximum="1536 MB", **rules), encoding="utf-8")
        assert list(read(file).doubts()) == []


def test_more_that_is_free_than_a_maximum_is_a_warning(tmp_path: Path) -> None:
    """It has a meaning, as the maximum is of the rest, but seldom the one that was meant."""
    file = tmp_path / "own.yaml"
    file.write_text(with_rules(free="2 GB", maximum="1536 MB"), encoding="utf-8")
    done = CliRunner().invoke(build(), ["tariffs", "check", str(file)])
    assert done.exit_code == 0, done.output
    assert done.stderr == (
        f"warning: {file}: charges[1].free: the first 2 GB cost nothing, and of what is beyond them"
        " at most 1536 MB is billed: the maximum is of what is left\n"
    )


def instance_tariff() -> str:
    """The good file over instance time, with a fee of 0."""
    text = GOOD[: GOOD.index("limits:")] if "limits:" in GOOD else GOOD
    charges = text[text.index("charges:") : text.index("fee:")]
    text = text.replace(charges, f"charges:\n{INSTANCE_MEMORY}")
    text = text.replace(text[text.index("fee:") : text.index("sizes:")], INSTANCE_FEE)
    if "free_tier:" in text:
        text = text[: text.index("free_tier:")]
    return text.replace("kind: turnaround", "kind: instance")


def test_over_instance_time_a_file_needs_no_fee(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(instance_tariff().replace(INSTANCE_FEE, ""), encoding="utf-8")
    tariff = read(file)
    assert (tariff.fee.price, tariff.unpriced_figures) == ("0", ())
    assert Tariff.model_validate(tariff.model_dump()) == tariff
    fee = GOOD[GOOD.index("fee:") : GOOD.index("sizes:")]
    file.write_text(GOOD.replace(fee, ""), encoding="utf-8")
    with pytest.raises(UnciaError, match="the key fee is missing"):
        read(file)
    schema = Tariff.model_json_schema()
    assert "fee" not in schema["required"]
    assert schema["else"] == {"required": ["fee"]}


INSTANCE_FEE = 'fee:\n  price: "0"\n  source: prices\n\n'
INSTANCE_MEMORY = """  - resource: memory
    basis: allocated
    price: "0.00001"
    per: GB-second
    source: prices

"""


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        (
            'basis: allocated\n    price: "0.00001"',
            'basis: lent\n    price: "0.00001"',
            "charges[0].basis",
            "over instance time only what is allocated is billed, not what is lent",
        ),
        (
            "per: GB-second",
            "per: GB-second\n    when: preemptible",
            "charges[0].when",
            "over instance time every instance is billed alike: write a tariff for each kind",
        ),
        (
            'price: "0"\n',
            'price: "0.01"\n',
            "fee.price",
            "over instance time there is no invocation to pay a fee for",
        ),
        (
            'price: "0"\n',
            "price: null\n",
            "fee.price",
            "over instance time there is no invocation to pay a fee for",
        ),
        (
            "sizes:\n",
            "free_tier:\n  gb_seconds: 100\n  source: prices\n\nsizes:\n",
            "free_tier",
            "over instance time nothing takes a free tier off: leave it out",
        ),
        (
            "sizes:\n",
            'idle:\n  price: "0.000004"\n  source: prices\n\nsizes:\n',
            "idle",
            "over instance time what instances idle is billed already: leave it out",
        ),
    ],
)
def test_a_price_of_instances_refuses_what_it_cannot_follow(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    text = instance_tariff()
    file = tmp_path / "own.yaml"
    file.write_text(text, encoding="utf-8")
    assert read(file).by_instance
    assert text.count(old) == 1, old
    text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UnciaError) as caught:
        read(file)
    (shown, line, rest) = caught.value.message.replace(f"{tmp_path}/", "").split(":", 2)
    assert (shown, rest) == ("own.yaml", f" {key}: {message}")
    assert key.rpartition(".")[2] in text.splitlines()[int(line) - 1]
