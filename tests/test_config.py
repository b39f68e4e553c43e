"""The configuration file: what it may hold, how it joins flags and environment, and how each fault is said."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from infscale.cli.config_file import config_file_option, settings_of
from infscale.cli.options import LISTEN_ADDRESS, SECONDS, URL, option
from infscale.config import Config, load_config
from infscale.engines import PROFILES
from infscale.errors import ConfigError, UsageError
from infscale.yaml_file import SETTINGS, load_yaml


@click.command()
@option("--engine-url", type=URL, multiple=True)
@option("--engine")
@option("--engine.min-interval", type=SECONDS, default=1.0)
@option("--capacity", type=click.IntRange(1))
@option("--ratio", type=float, default=0.5)
@option("--mode", type=click.Choice(["a", "b"]), default="a")
@option("--web.listen-address", type=LISTEN_ADDRESS, multiple=True, default=[":10047"])
@option("--collector.histograms/--no-collector.histograms", default=True)
@config_file_option()
def show(config_file: Config, **flags: object) -> None:
    """Print what the flags are."""
    click.echo(sorted(config_file.profiles))
    for name, value in flags.items():
        click.echo(f"{name}={value}")


ALLOWED = settings_of(show)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes `infscale.yaml` into the present folder and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        Path("infscale.yaml").write_bytes(data)
        return "infscale.yaml"

    return write


def fault(path: str) -> str:
    """The error that loading a file raises, which is one line and begins with the file's name."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, ALLOWED)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < 1000
    return text.removeprefix(f"{path}: ")


def test_settings_and_profiles_are_read(file):
    """A file gives values by flag name and profiles by their own name."""
    config = load_config(
        file("engine-url: [http://a:1/metrics, http://b:2/metrics]\ncapacity: 8\nprofiles: [{name: x, total: y}]"),
        ALLOWED,
    )

    assert config.settings == {"engine-url": ["http://a:1/metrics", "http://b:2/metrics"], "capacity": 8}
    assert list(config.profiles) == ["x"]
    assert config.source == "infscale.yaml"


def test_the_flags_are_the_keys():
    """Every long flag but --config.file may stand in the file; `--no-` forms may not."""
    assert sorted(ALLOWED) == [
        "capacity",
        "collector.histograms",
        "engine",
        "engine-url",
        "engine.min-interval",
        "mode",
        "ratio",
        "web.listen-address",
    ]


def test_file_stands_below_environment_and_flags_and_above_defaults(file):
    """Precedence is flag, environment, file, default."""
    path = file("engine: from-file\ncapacity: 8\nengine.min-interval: 3\ncollector.histograms: false\n")

    done = CliRunner().invoke(
        show, ["--config.file", path, "--engine", "from-flag"], env={"INFSCALE_CAPACITY": "9"}, catch_exceptions=False
    )

    assert "engine=from-flag\n" in done.output
    assert "capacity=9\n" in done.output
    assert "engine_min_interval=3.0\n" in done.output
    assert "collector_histograms=False\n" in done.output
    assert "ratio=0.5\n" in done.output


def test_file_may_be_named_in_the_environment(file):
    """INFSCALE_CONFIG_FILE is --config.file."""
    path = file("ratio: 1\nweb.listen-address: 127.0.0.1:9\nprofiles: [{name: x, total: y}]")

    done = CliRunner().invoke(show, [], env={"INFSCALE_CONFIG_FILE": path}, catch_exceptions=False)

    assert done.output.startswith("['x']\n")
    assert "ratio=1.0\n" in done.output
    assert "web_listen_address=(Address(host='127.0.0.1', port=9),)\n" in done.output


def test_one_value_may_stand_for_a_list_of_one(file):
    """A flag that repeats takes a list or a single value."""
    assert load_config(file("engine-url: http://a:1/"), ALLOWED).settings == {"engine-url": ["http://a:1/"]}


def test_no_file_is_an_empty_configuration():
    """Without --config.file a command gets no profiles, and its defaults."""
    done = CliRunner().invoke(show, [], catch_exceptions=False)

    assert done.output.startswith("[]\nengine_url=()\n")


def test_own_profile_replaces_the_built_in_of_its_name(file):
    """A profile called `vllm` is the one that --engine vllm then means; the others stay."""
    config = load_config(file("profiles: [{name: vllm, prefix: v, total: y}, {name: own, total: z}]"), ALLOWED)

    assert config.engine("vllm").prefix == "v"
    assert list(config.engines()) == ["vllm", "own", *(name for name in PROFILES if name != "vllm")]


def test_unknown_engine_lists_the_known(file):
    """A name that no profile has is an error with those there are, the file's own among them."""
    config = load_config(file("profiles: [{name: own, total: z}]"), ALLOWED)

    with pytest.raises(UsageError, match=r"^unknown engine 'vlm'; known are .*\bown\b.*\bvllm$"):
        config.engine("vlm")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("enigne: vllm", "enigne: unknown key, did you mean 'engine'?"),
        ("engine.min_interval: 1", "engine.min_interval: unknown key, did you mean 'engine.min-interval'?"),
        ("zzz: 1", "zzz: unknown key; known are capacity, "),
        ("config.file: other.yaml", "config.file: unknown key"),
        ("capacity: many", "capacity: 'many' is not a valid integer range"),
        ("capacity: [8]", "capacity: expected a whole number, got a list"),
        ("capacity: true", "capacity: expected a whole number, got true"),
        ("capacity: 0", "capacity: 0 is not in the range x>=1"),
        ("capacity:", "capacity: expected a whole number, got nothing"),
        ("engine: 7", "engine: expected text, got the number 7 (put it in quotes)"),
        ("engine: 2024-01-01", "engine: expected text, got date 2024-01-01"),
        ("engine: {name: vllm}", "engine: expected text, got a mapping"),
        ("collector.histograms: 'no'", "collector.histograms: expected true or false, got 'no'"),
        ("collector.histograms: 1", "collector.histograms: expected true or false, got the number 1"),
        ("engine.min-interval: -1", "engine.min-interval: '-1' is not a number of seconds above 0"),
        ("engine.min-interval: .nan", "engine.min-interval: 'nan' is not a number of seconds above 0"),
        ("mode: c", "mode: 'c' is not one of 'a', 'b'"),
        ("engine-url: [http://a:1/, b:2]", "engine-url[1]: URL 'b:2' has no scheme: expected http:// or https://"),
        ("engine-url: http://a:99999/", "engine-url: URL 'http://a:99999/' has a port out of range"),
        ("web.listen-address: 10047", "web.listen-address: '10047' is not an address to listen on"),
        ("profiles: {name: x}", "profiles: expected a list, got a mapping"),
        ("profiles: [vllm]", "profiles[0]: expected a mapping, got 'vllm'"),
        ("profiles: [{name: x, runing: a}]", "profiles[0].runing: unknown key, did you mean 'running'?"),
        (
            "profiles: [{name: x, total: a}, {name: x, total: b}]",
            "profiles[1].name: 'x' is the name of profiles[0] too",
        ),
        ("engine: a\nratio: 1\nengine: b\n", "engine: given twice, on line 1 and on line 3"),
        ("profiles:\n- name: x\n  total: a\n  name: y", "profiles[0].name: given twice, on line 2 and on line 4"),
        ("engine: [a", "line 2, column 1: not YAML: did not find expected ',' or ']'"),
        ("engine: a\n\tratio: 1\n", "line 2, column 1: not YAML: "),
        ("engine: a: b", "line 1, column 10: not YAML: mapping values are not allowed in this context"),
        ("engine: a\n---\nengine: b\n", "line 2, column 1: not YAML: but found another document"),
        ("engine: !!python/object/apply:os.system [id]", "engine: expected text, got a list"),
        ("engine: !!python/name:os.system id", "engine: not a value: "),
        ("engine: \x01", "not YAML: "),
        ("? [a]\n: b\n", "expected a key in text on line 1"),
        ("engine: 2024-13-45", "engine: not a value: a number or date that is none"),
        ("a: &a [1]\nb: *a\n", "line 2, column 4: aliases are not supported, write the value out"),
        ("a: " + "[" * 100, "line 1, column 19: nested too deep"),
        ("a: " + "[" * 500_000, "line 1, column "),
        ("engine-url: [" + "1," * 60000 + "]", "line 1, column "),
        ("", "the file is empty, expected settings"),
        ("# only a comment\n", "the file is empty"),
        ("null", "expected a mapping of settings, got nothing"),
        ("- engine", "expected a mapping of settings, got a list"),
        ("vllm", "expected a mapping of settings, got a text"),
        ('"a\\nb": 1', "'a\\nb': unknown key"),
        ("k" * 1000 + ": 1", "'kkkk"),
        (b"\x7fELF\x00\x01\xff", "a binary file, expected YAML in UTF-8"),
        (b"engine: a\x00b", "a binary file, expected YAML in UTF-8"),
        (b"#" * (SETTINGS.bytes + 1), "larger than 1 MiB, not a configuration file"),
    ],
)
def test_what_cannot_be_used_is_one_line(file, text, said):
    """Every fault of a file is one line with its name, the place in it and what was expected."""
    assert fault(file(text)).startswith(said)


def test_alias_bomb_is_refused_before_it_grows(file):
    """Nested aliases, which stand for 10^9 values, are an error at the first alias."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    assert fault(file("\n".join(lines))).startswith("line 2, column 10: aliases are not supported")


def test_missing_file(file):
    """A file that is not there says so."""
    assert fault("none.yaml") == "cannot be read: No such file or directory"


def test_directory(file, tmp_path):
    """A folder in place of a file says so."""
    assert fault(str(tmp_path)) == "cannot be read: Is a directory"


def test_byte_order_mark_and_windows_lines_are_fine(file):
    """A file out of a Windows editor reads like any other."""
    assert load_yaml(file(b"\xef\xbb\xbfengine: vllm\r\ncapacity: 8\r\n")) == {"engine": "vllm", "capacity": 8}


def test_keys_are_text_as_written(file):
    """YAML's `on` and `1` are text as keys: labels may be called so."""
    assert load_yaml(file("on: a\n1: b\n")) == {"on": "a", "1": "b"}


@given(st.lists(st.sampled_from([*"[]{}:,-?&*!|>'\"%@`# \n\t~x1", "a: ", "- ", "<<", "profiles:", "!!"]), max_size=12))
def test_any_text_is_a_mapping_or_an_error(tmp_path_factory, parts):
    """Whatever stands in a file: it is read as a mapping, or it is a ConfigError of one line."""
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text("".join(parts), encoding="utf-8")
    said, values = "", {}
    try:
        values = load_yaml(str(path))
    except ConfigError as error:
        said = str(error)

    assert "\n" not in said
    assert isinstance(values, dict)
