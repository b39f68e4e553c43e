"""The image under test, with its root file system unpacked. `make image-test` builds it and gives `--image NAME`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.pod import Image

_BASE_NAME = "org.opencontainers.image.base.name"


def _buildah(*arguments: str) -> str:
    done = subprocess.run(
        ["buildah", "--storage-driver", "vfs", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"buildah {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config) -> Iterator[Image]:
    """The image that `--image` names, and its base beside it."""
    name = pytestconfig.getoption("--image")
    config: dict[str, Any] = json.loads(_buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
    containers = [_buildah("from", "--pull=false", one) for one in (name, config["Labels"][_BASE_NAME])]
    root, base_root = (Path(_buildah("mount", container)) for container in containers)
    yield Image(root, base_root, config)
    _buildah("rm", *containers)
