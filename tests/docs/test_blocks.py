"""A page that is wrong is found out."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest

from uncia.errors import UnciaError

WARM = "experiment-file.md, experiments.warm"
PAGE = """\
# A page

<!-- file: a.yaml -->
<!-- part of: b.md -->

```yaml
a: 1
```

* A list with a block.

  ```console
  $ uncia tariffs list
  ```

Say `uncia tariffs
show ID`.

```text
nothing
```
"""


def test_blocks_have_the_comments_above_them() -> None:
    first, second, third = pages.blocks(Path("page.md"), PAGE)
    assert (first.line, first.language, first.code) == (6, "yaml", "a: 1\n")
    assert first.comments == {"file": "a.yaml", "part of": "b.md"}
    assert (second.line, second.code, second.comments) == (12, "$ uncia tariffs list\n", {})
    assert third.comments == {}
    whole = "<!-- page run by: tests/x.py -->\n" + PAGE
    assert [block.comments["run by"] for block in pages.blocks(Path("page.md"), whole)] == [
        "tests/x.py"
    ] * 3
    assert list(pages.inline(PAGE)) == ["uncia tariffs show ID"]


def test_commands_are_told_from_their_output() -> None:
    code = "$ uncia a \\\n    --b\n$ uncia c\nprinted\n  more\n"
    assert pages.commands(code) == [
        pages.Command("uncia a      --b", None),
        pages.Command("uncia c", "printed\n  more\n"),
    ]
    assert pages.commands("uncia a\n\nuncia b\n") == [
        pages.Command("uncia a", None),
        pages.Command("uncia b", None),
    ]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("uncia bill RUN --tariff x  # the price", None),
        ("$ uncia cost decompose RUN | less", None),
        ("machine-a$ uncia load f.yaml --share 1/3", None),
        ("uncia cost ANALYSIS TABLE...", None),
        ("uncia load URL --arrivals=poisson --rate 5/s", None),
        ("uncia bil RUN", "no command bil"),
        ("uncia cost decomposition RUN", "no command decomposition"),
        ("uncia bill RUN --tarif x", "no option --tarif"),
        ("SEED=1 cat x | uncia bill RUN --tarif x", "no option --tarif"),
        ("uncia bill RUN [--bye function]", "no option --bye"),
    ],
)
def test_commands_and_options_that_do_not_exist_are_found(line: str, wrong: str | None) -> None:
    (words,) = pages.uncia_commands(line)
    assert (pages.fault(words) is None) == (wrong is None)
    assert (wrong or "") in (pages.fault(words) or "")


@pytest.mark.parametrize(
    ("code", "comment"),
    [
        ("name: x\nstreams: []\n", ""),
        ("arrivals: {kind: poison, rate: 1/s, duration: 1s}\n", WARM),
        ("closed: {clients: 1, duration: 1s}\nclosed: {client: 1}\n", WARM),
        ("sizes: {kind: observed}\n", "tariffs.md"),
        ("cluster: {workers: 0}\n", "simulation.md"),
    ],
)
def test_a_yaml_block_that_its_reader_refuses_is_found(
    tmp_path: Path, code: str, comment: str
) -> None:
    comments = {"part of": comment} if comment else {}
    with pytest.raises(UnciaError):
        pages.check_yaml(pages.Block(Path("page.md"), 1, "yaml", code, comments), tmp_path)
