"""The reference pages that are made from code: docs/reference is what tools/reference.py makes of it, and whole."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from infscale.cli import cli
from infscale.core.scaling import MetricName
from infscale.core.settings import KEYS, MEANINGS, MEASURES
from infscale.engines import PROFILES
from infscale.engines.custom import KEYS as PROFILE_KEYS
from infscale.engines.profile import Profile
from infscale.normalise import counted
from tests.rules.alerts_checks import labels
from tests.rules.expressions import LEVELS
from tools.reference import FOLDER, ROOT, pages
from tools.reference_pages.engines import recorded
from tools.reference_pages.markdown import attributes
from tools.reference_pages.rules import labels_of, recorded_meanings

MADE = pages()


def rows(page: str) -> list[list[str]]:
    """The cells of every row of a page's tables."""
    lines = MADE[page].splitlines()
    return [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines if line.startswith("| ")]


def test_pages_are_made_from_the_code():
    """`python tools/reference.py` changes nothing, and nothing else lies in the folder."""
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(MADE)
    for name, text in MADE.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run `python tools/reference.py`"


@pytest.mark.parametrize("page", MADE)
def test_tables_are_whole(page):
    """Each row has as many cells as its table has columns, and none is empty."""
    width = 0
    for cells in rows(page):
        if set(cells) == {"---"}:
            width = len(cells)
        elif width:
            assert all(cell.strip() for cell in cells), cells
    for table in re.findall(r"(?:^\|.*\n)+", MADE[page], re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_flags_name_their_variables():
    """Each command's flags stand there with default and variable, as its help has them."""
    context = click.Context(cli)
    text = MADE["flags.md"]

    for name in cli.list_commands(context):
        section = text.partition(f"## infscale {name}\n")[2].partition("\n## ")[0]
        command = cli.get_command(context, name)
        assert command is not None
        for param in command.params:
            for word in (*param.opts, *([param.envvar] if isinstance(param.envvar, str) else param.envvar or ())):
                assert not isinstance(param, click.Option) or f"`{word}`" in section, f"{name}: {word}"
    assert "| `--web.listen-address` | `ADDRESS` | `INFSCALE_WEB_LISTEN_ADDRESS` | `:10047` |" in text
    assert "| `--engine.timeout` | `SECONDS` | `INFSCALE_ENGINE_TIMEOUT` | `2` |" in text


def test_every_word_of_the_grammar_has_a_meaning():
    """Keys and metrics of the grammar are all explained, and nothing else is."""
    assert set(MEANINGS) == set(KEYS)
    assert list(MEASURES) == list(MetricName)


def test_defaults_of_the_grammar():
    """A default is that of the code: the HPA's behaviour, coverage, the prompt weight."""
    defaults = {cells[0]: cells[2] for cells in rows("policy.md") if len(cells) == 6}

    assert defaults["`up`"] == "`4/15+100%/15`"
    assert (defaults["`upwindow`"], defaults["`downwindow`"], defaults["`tolerance`"]) == ("`0`", "`300`", "`0.1`")
    assert (defaults["`coverage`"], defaults["`promptweight`"], defaults["`max`"]) == ("`0.5`", "`0.1`", "-")


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_engines_show_all_that_is_counted(profile):
    """Every counted gauge of a profile stands in its table, and is said to be counted."""
    section = MADE["engines.md"].partition(f"## {profile.name}\n")[2].partition("\n## ")[0]
    shown = [line for line in section.splitlines() if "| counted" in line]

    for metric in counted(profile):
        for name in metric.names:
            assert sum(f"`{name}" in line for line in shown) >= 1, name


def test_eras_are_those_of_the_recorded_pages():
    """VLLM's change of names is seen on the pages of its versions, oldest first."""
    found = recorded(PROFILES["vllm"])

    assert list(found) == ["0.6.6", "0.8.5", "0.10.2", "0.12.0", "0.16.0", "0.20.2", "0.33.0"]
    assert "num_requests_swapped" in found["0.6.6"]
    assert "num_requests_swapped" not in found["0.8.5"]
    assert {"kv_cache_usage_perc", "gpu_cache_usage_perc"} <= found["0.10.2"]


def test_profile_keys_are_explained():
    """What the configuration page says of a profile's key stands in the profile itself."""
    explained = attributes(Profile)

    assert {key.field for key in PROFILE_KEYS.values()} - set(explained) == {"hints"}


def test_rules_are_explained_once():
    """rules/README.md has a meaning for each recorded series, and none for a series that nobody records."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "rules").glob("*.yaml"))
    recorded_names = set(re.findall(r"^ +- record: (\S+)$", text, re.MULTILINE))
    meanings = {name for name in recorded_meanings() if ":" in name.rstrip(":") or name.startswith("infscale_")}

    assert meanings == recorded_names


@pytest.mark.parametrize("level", sorted({*LEVELS, *labels.LEVELS}))
def test_labels_of_a_level(level):
    """The labels on the page are those that the rules' own tests hold the expressions to."""
    expected = labels.LEVELS.get(level) or LEVELS[level]

    if level != "target":
        assert set(labels_of(f"{level}:x:y")) == set(expected)


def test_alerts_link_to_their_runbooks():
    """Each alert's link leads to a page."""
    links = re.findall(r"\]\((\.\./runbooks/[^)]+)\)", MADE["rules.md"])

    assert len(links) == len(list((ROOT / "docs" / "runbooks").glob("Infscale*.md")))
    assert all((FOLDER / Path(link)).resolve().exists() for link in links)
