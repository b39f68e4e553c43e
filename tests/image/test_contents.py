"""What is in the image, and what is not."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from infscale.cli import COMMANDS
from tests.image.pod import Image, Pod

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 120_000_000


def files(root: Path) -> dict[str, os.stat_result]:
    """Every file of a root file system by its path, symbolic links not followed."""
    return {
        os.path.join(folder, name).removeprefix(str(root)): os.lstat(os.path.join(folder, name))
        for folder, folders, names in os.walk(root)
        for name in (*names, *folders)
    }


def test_size_above_the_base(image: Image, record_property) -> None:
    """Under 120 MB are added to the base, as bytes in files."""
    sizes = [
        sum(each.st_size for each in files(root).values() if stat.S_ISREG(each.st_mode))
        for root in (image.root, image.base_root)
    ]
    print(
        f"\nimage: {sizes[0] / 1e6:.1f} MB, base {sizes[1] / 1e6:.1f} MB, above it {(sizes[0] - sizes[1]) / 1e6:.1f} MB"
    )
    record_property("bytes above base", sizes[0] - sizes[1])
    assert sizes[0] - sizes[1] < LIMIT_BYTES


def test_what_the_image_says_of_itself(image: Image) -> None:
    """A numeric user that runAsNonRoot can check, the command as entry point, both ports, the version."""
    config = image.config
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == ("65532:65532", ["infscale"], ["--help"])
    assert set(config["ExposedPorts"]) == {"10047/tcp", "10048/tcp"}
    assert config["Labels"]["org.opencontainers.image.version"] in (ROOT / "exporter/infscale/__init__.py").read_text()
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


@pytest.mark.parametrize("folder", ["rules", "dashboards"])
def test_rules_and_dashboards_are_in_it(image: Image, folder: str) -> None:
    """They are the repository's own, byte for byte."""
    there = image.root / "usr/share/infscale" / folder
    paths = [
        path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.suffix in (".yaml", ".json")
    ]
    for path in paths:
        assert (there / path).read_bytes() == (ROOT / folder / path).read_bytes(), path


def test_hook_bundle_is_in_it(image: Image) -> None:
    """The drain's bundle stands ready, readable for everyone: to copy, or to mount as an image volume."""
    hook = image.root / "usr/share/infscale/hook"
    assert {path.name for path in hook.iterdir()} == {"infscale-drain", "infscale-drain.pyz", "profiles.json"}
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in hook.iterdir())


def test_nothing_of_the_build_is_left(image: Image) -> None:
    """No installer, no source tree, none of the building machine's network settings."""
    added = files(image.root).keys() - files(image.base_root).keys()
    assert [
        path for path in added if path.startswith(("/src", "/pip", "/hook", "/etc", "/run/ca", "/root", "/tmp/"))
    ] == []
    packages = {path.name for path in image.root.glob("opt/infscale/lib/python3*/site-packages/*")}
    assert {"infscale", "infscale_sim", "aiohttp", "bcrypt"} <= packages
    assert packages.isdisjoint({"pip", "setuptools", "wheel", "pytest"})


def test_user_can_read_all_of_it_and_write_nothing(image: Image) -> None:
    """What is added is root's, for everyone to read."""
    added = {
        path: each for path, each in files(image.root).items() if path.startswith(("/opt/", "/usr/share/infscale"))
    }
    assert len(added) > 1000
    assert {path for path, each in added.items() if (each.st_uid, each.st_gid) != (0, 0)} == set()
    plain = {path: each.st_mode for path, each in added.items() if not stat.S_ISLNK(each.st_mode)}
    assert [path for path, mode in plain.items() if mode & 0o002 or mode & 0o444 != 0o444] == []


def test_modules_are_compiled(image: Image) -> None:
    """Every module has its byte code: a read-only root could not keep it, and each start would compile anew."""
    packages = next(image.root.glob("opt/infscale/lib/python3*/site-packages"))
    sources = [
        path for name in ("infscale", "infscale_sim", "aiohttp", "click") for path in (packages / name).rglob("*.py")
    ]
    missing = [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]
    assert len(sources) > 100
    assert missing == []


def test_every_command_starts(image: Image, tmp_path: Path) -> None:
    """Each command shows its help as 65532 on a read-only root: all that it imports is there."""
    script = "".join(f"infscale {name} --help >/dev/null || echo {name} >&2\n" for name in COMMANDS)
    spec = {"containers": [{"name": "commands", "command": ["sh", "-c", script]}]}
    with Pod(image, tmp_path, spec) as pod:
        done = pod.run("commands")
    assert (done.returncode, done.stderr) == (0, "")


def test_confinement(image: Image, tmp_path: Path) -> None:
    """The tests below mean something: the user is 65532 without capabilities, and nowhere can it write."""
    script = "id -u; id -g; grep -E 'CapEff|NoNewPrivs' /proc/self/status; touch /x /tmp/x /opt/infscale/x /usr/share/x"
    spec = {"containers": [{"name": "shell", "command": ["sh", "-c", script]}]}
    with Pod(image, tmp_path, spec) as pod:
        done = pod.run("shell")
    assert done.stdout.split() == ["65532", "65532", "CapEff:", "0" * 16, "NoNewPrivs:", "1"]
    assert done.stderr.count("Read-only file system") == 4


def test_hadolint_is_quiet() -> None:
    """The Dockerfile has no finding."""
    done = subprocess.run(
        [ROOT / ".venv/bin/hadolint", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout + done.stderr == ""
