"""Each file of the catalogue against figures typed in here a second time, by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

import uncia.tariffs
from uncia.errors import UnciaError
from uncia.tariffs import Tariff, bill, billable, get, ids, read, yaml_text
from uncia.tariffs.sizes import Combinations, Fixed, Independent, Proportional
from uncia.units import GIB, MIB, NS_PER_MS, NS_PER_S
from uncia.yamlio import load, validate

ROOT = Path(uncia.tariffs.__file__).parent


@dataclass(frozen=True)
class Figures:
    """What Table 1 of the cost paper and the price constants of its artifact say.

    Prices in dollars per vCPU-second and GB-second as fractions of text; times in ms.
    """

    time: str
    step: int | None
    least: int | None
    cpu: str | None
    memory: str | None
    fee: str | None
    sizes: str
    basis: str = "allocated"


HOUR = 3600
FIGURES = {
    "aws-lambda-x86": Figures("turnaround", 1, None, "0", "1.66667e-5", "2e-7", "proportional"),
    "aws-lambda-arm": Figures("turnaround", 1, None, "0", "1.33334e-5", "2e-7", "proportional"),
    "gcp-run-request": Figures("turnaround", 100, None, "2.4e-5", "2.5e-6", "4e-7", "independent"),
    "gcp-run-instance": Figures("instance", 100, None, "1.8e-5", "2e-6", "0", "independent"),
    "azure-consumption": Figures("execution", 1, 100, "0", "1.6e-5", "2e-7", "fixed", "used"),
    "azure-premium": Figures("instance", None, 720 * HOUR * 1000, None, None, "0", "combinations"),
    "azure-flex": Figures("execution", 100, 1000, "0", "2.6e-5", "4e-7", "proportional"),
    "ibm-code-engine": Figures(
        "turnaround", 100, None, "3.431e-5", "3.56e-6", "5.38e-7", "combinations"
    ),
    "huawei-functiongraph": Figures("execution", 1, None, "0", "1.667e-5", "2e-7", "combinations"),
    "alibaba-fc": Figures("execution", 1, None, "2e-5", "3e-6", "1.5e-7", "independent"),
    "oracle-functions": Figures("execution", None, None, "0", "1.417e-5", "2e-7", "combinations"),
    "vercel-functions": Figures("execution", None, None, "0", "5e-5", "6e-7", "proportional"),
    "cloudflare-workers": Figures("cpu", 1, None, "2e-5", "-", "3e-7", "fixed"),
    "aws-fargate-arm": Figures(
        "instance", 1000, 60_000, "0.03238/3600", "0.00356/3600", "0", "combinations"
    ),
    "aws-ec2-c6g-medium": Figures("instance", 1000, 60_000, "-", "-", "0", "fixed"),
    "aws-ec2-t4g-small": Figures("instance", 1000, 60_000, "-", "-", "0", "fixed"),
    "slim": Figures("execution", None, None, "2.4e-5", "2.5e-6", "0", "proportional"),
    "sim": Figures("execution", None, None, "2.4e-5", "2.5e-6", "0", "observed"),
    "spfu": Figures("execution", None, None, "2.4e-5", "2.5e-6", "0", "observed", "used"),
    "npfu": Figures("execution", None, None, "2.4e-5", "2.5e-6", "0", "observed"),
}


def fraction(text: str) -> Fraction:
    over = text.split("/")
    return Fraction(over[0]) / (Fraction(over[1]) if len(over) > 1 else 1)


def unit(tariff: Tariff, resource: str) -> Fraction | str | None:
    """Dollars per vCPU-second or GB-second of the first charge; '-' where there is none."""
    for charge in tariff.charges:
        if charge.resource == resource:
            scale = 10**6 if resource == "cpu" else GIB
            return None if charge.unit_price is None else charge.unit_price * scale * NS_PER_S
    return "-"


def test_the_catalogue_holds_these_tariffs() -> None:
    assert set(ids()) == set(FIGURES)


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figures(name: str) -> None:
    tariff, figures = get(name), FIGURES[name]
    assert tariff.time.kind == figures.time
    for value, expected in (
        (tariff.time.granularity, figures.step),
        (tariff.time.minimum, figures.least),
    ):
        assert value == (None if expected is None else expected * NS_PER_MS)
    for resource, price in (("cpu", figures.cpu), ("memory", figures.memory)):
        expected_price = fraction(price) if price not in (None, "-") else price
        assert unit(tariff, resource) == expected_price, resource
    assert tariff.fee.price is not None
    assert Fraction(tariff.fee.price) == Fraction(figures.fee or 0)
    assert tariff.sizes.kind == figures.sizes
    memory = [charge.basis for charge in tariff.charges if charge.resource == "memory"]
    if memory:
        assert memory[0] == figures.basis
    assert tariff.as_of.year == 2025
    assert all(source.citation for source in tariff.sources.values())
    assert any(source.url for source in tariff.sources.values())


def test_sizes_are_as_documented() -> None:
    for name in ("aws-lambda-x86", "aws-lambda-arm", "vercel-functions", "slim"):
        sizes = get(name).sizes
        assert isinstance(sizes, Proportional)
        assert sizes.memory_per_vcpu == 1769 * MIB
    lambda_memory = get("aws-lambda-x86").sizes
    assert isinstance(lambda_memory, Proportional)
    knob = lambda_memory.memory
    assert (knob.minimum, knob.maximum, knob.step) == (128 * MIB, 10240 * MIB, MIB)
    flex = get("azure-flex").sizes
    assert isinstance(flex, Proportional)
    assert flex.memory.values == (2048 * MIB, 4096 * MIB)
    consumption = get("azure-consumption")
    assert isinstance(consumption.sizes, Fixed)
    assert (consumption.sizes.cpu, consumption.sizes.memory) == (10**6, 1536 * MIB)
    assert consumption.charges[0].limit("granularity") == 128 * MIB
    alibaba = get("alibaba-fc").sizes
    assert isinstance(alibaba, Independent)
    assert (alibaba.cpu.step, alibaba.memory.step) == (50_000, 64 * MIB)
    assert alibaba.memory_per_vcpu is not None
    assert (alibaba.memory_per_vcpu.minimum, alibaba.memory_per_vcpu.maximum) == (GIB, 4 * GIB)
    google = get("gcp-run-request").sizes
    assert isinstance(google, Independent)
    assert google.cpu.step == 10_000
    assert (512 * MIB, 333_000) in [(item.memory_up_to, item.cpu) for item in google.cpu_default]
    ibm = get("ibm-code-engine").sizes
    assert isinstance(ibm, Combinations)
    pairs = [(item.cpu, item.memory) for item in ibm.combinations]
    assert pairs == [(250_000, GIB), (500_000, 2 * GIB), (1_000_000, 4 * GIB)]


def test_huawei_pairs_are_those_seen_in_the_trace() -> None:
    sizes = get("huawei-functiongraph").sizes
    assert isinstance(sizes, Combinations)
    pairs = {(item.cpu or 0) // 1000: item.memory // MIB for item in sizes.combinations}
    seen = {300: 128, 400: 256, 600: 512, 800: 768, 1000: 1024, 1800: 2048, 3400: 4096, 6600: 8192}
    assert seen.items() <= pairs.items()
    assert all(milli == 200 + 100 * memory // 128 for milli, memory in pairs.items())


def test_the_models_prices_have_the_papers_ratio() -> None:
    for name in ("slim", "sim", "spfu"):
        cpu, memory = unit(get(name), "cpu"), unit(get(name), "memory")
        assert isinstance(cpu, Fraction)
        assert isinstance(memory, Fraction)
        assert cpu / memory == Fraction("9.6")


def test_prices_of_machines_reproduce_the_papers_comparison() -> None:
    """Section 1 of the paper: a second of 1 vCPU, 2 GB (1769 MB on Lambda) and 1 GB of disk."""

    def second(name: str, amounts: dict[str, Fraction]) -> Fraction:
        scale = {"cpu": 10**6, "memory": GIB, "storage": GIB, "instance": 1}
        return sum(
            (charge.unit_price or 0) * NS_PER_S * scale[charge.resource] * amounts[charge.resource]
            for charge in get(name).charges
        ) + Fraction(0)

    result = Fraction(1)
    machine = second("aws-ec2-c6g-medium", {"instance": result, "storage": result})
    container = second("aws-fargate-arm", {"cpu": result, "memory": 2 * result, "storage": result})
    function = second("aws-lambda-arm", {"cpu": result, "memory": Fraction(1769, 1024)})
    assert float(machine) == pytest.approx(9.475309e-6, rel=1e-7)
    assert float(container) == pytest.approx(1.1003056e-5, rel=1e-7)
    assert float(function) == pytest.approx(2.303397e-5, rel=1e-6)
    assert float(machine / function) == pytest.approx(0.41136, abs=1e-5)
    assert float(container / function) == pytest.approx(0.47769, abs=1e-5)


def test_what_has_no_public_price_is_left_open() -> None:
    assert get("azure-premium").unpriced_figures == ("cpu allocated", "memory allocated")
    assert get("aws-ec2-t4g-small").unpriced_figures == ("instance allocated",)
    assert len(get("npfu").unpriced_figures) == 4
    open_ones = {name for name in ids() if get(name).unpriced_figures}
    assert open_ones == {"azure-premium", "aws-ec2-t4g-small", "npfu"}


def test_only_request_billing_with_prices_is_billed_by_default() -> None:
    refused = set(ids()) - set(billable())
    assert refused == {
        "gcp-run-instance",
        "azure-premium",
        "aws-fargate-arm",
        "aws-ec2-c6g-medium",
        "aws-ec2-t4g-small",
        "npfu",
    }


@pytest.mark.parametrize("name", ["gcp-run-instance", "aws-ec2-c6g-medium"])
def test_instance_billing_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(UnciaError, match="that is in the instances table") as caught:
        bill("not read", [name])
    assert "aws-lambda-x86" in (caught.value.hint or "")


def test_a_tariff_without_prices_is_refused_in_a_sentence() -> None:
    with pytest.raises(UnciaError, match="no public price is known for cpu borrowed"):
        bill("not read", ["npfu"])


def test_an_unknown_id_is_told_with_the_nearest() -> None:
    with pytest.raises(UnciaError, match="there is no tariff 'aws-lamda-x86'") as caught:
        get("aws-lamda-x86")
    assert caught.value.hint == "Did you mean aws-lambda-x86?"


def test_a_tariff_named_twice_is_refused() -> None:
    with pytest.raises(UnciaError, match="named twice"):
        bill("not read", ["slim", "slim"])


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_file_reads_the_same_from_its_place_its_text_and_its_json(
    name: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text(yaml_text(name), encoding="utf-8")
    assert read(copy) == get(name)
    assert Tariff.model_validate(get(name).model_dump(mode="json")) == get(name)


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.yaml")), ids=lambda path: path.stem)
def test_prices_are_text_in_the_files_never_numbers(path: Path) -> None:
    document = load(path)
    assert validate(Tariff, document).id == path.stem
    for charge in document.data["charges"]:
        assert charge["price"] is None or isinstance(charge["price"], str)
    assert isinstance(document.data["fee"]["price"], str)


REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "tariffs.md"


def test_the_reference_names_every_tariff() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert [name for name in ids() if f"`{name}`" not in text] == []


def test_the_forms_in_the_reference_are_valid() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    whole, others = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    form = load(whole, "tariffs.md").data
    assert validate(Tariff, load(whole, "tariffs.md")).id == "my-cloud"
    kinds = {form["sizes"]["kind"]}
    for sizes in re.split(r"(?m)^(?=sizes:)", others):
        if sizes:
            kinds.add(Tariff.model_validate(form | load(sizes).data).sizes.kind)
    assert kinds == {"observed", "proportional", "fixed", "combinations", "independent"}
