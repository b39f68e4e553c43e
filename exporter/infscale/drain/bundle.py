"""Builds the preStop hook out of this installation: a zip application, the launcher beside it, custom profiles as JSON.

Called by `infscale install-hook`, in an init container or at a desk. The zip holds `infscale.drain.hook` and whatever
of infscale it imports, found by reading the sources, so that an engine's container runs the sidecar's own parser and
gauge list and nothing else. The same sources give the same bytes. Modules are stored, not packed: the import costs the
same and a Python without zlib will do.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from infscale.drain import launcher
from infscale.engines.custom import to_mapping
from infscale.engines.profile import Profile
from infscale.errors import SourceError

ENTRY = "infscale.drain.hook"
PROFILES_NAME = "profiles.json"

# Python 2 and 3.0 to 3.8 must be able to read this much. The launcher knows the status 3 and tries its next Python.
_MAIN = f"""import sys

if sys.version_info < (3, 9):
    sys.exit(3)

from zipimport import zipimporter


class Importer(zipimporter):
    # Python's own compiles every module twice, a second time to tell its file's name: 50 ms of 150 in all.
    def get_filename(self, name):
        path = self.archive + "/" + self.prefix + name.rpartition(".")[2]
        return path + ("/__init__.py" if self.is_package(name) else ".py")


sys.path_hooks.insert(0, Importer)
sys.path_importer_cache.pop(sys.path[0], None)

from {ENTRY} import main

sys.exit(main(sys.argv[1:]))
"""


def install(folder: Path, defaults: Sequence[str], profiles: Iterable[Profile] = ()) -> None:
    """Writes launcher, zip and profiles into a folder, which may exist; each file appears whole or not at all.

    All three are readable for everyone; the launcher comes last.

    Args:
        folder: made with its parents where it is missing.
        defaults: options for where the launcher is called without.
        profiles: engine profiles that are not built in, or that replace one that is.

    Raises:
        SourceError: the folder cannot be made or written to.
    """
    mappings = [to_mapping(profile) for profile in profiles]
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(0o755)  # whatever the umask: the engine may run as any user
        _write(folder / launcher.ZIP_NAME, zip_application(), 0o644)
        _write(folder / PROFILES_NAME, json.dumps(mappings, indent=1).encode() + b"\n", 0o644)
        _write(folder / launcher.NAME, launcher.render(defaults).encode(), 0o755)
    except OSError as error:
        raise SourceError(f"{folder}: the hook cannot be written there: {error.strerror}") from None


def zip_application() -> bytes:
    """The bytes of `infscale-drain.pyz`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, source in [("__main__.py", _MAIN.encode()), *sorted(_sources().items())]:
            info = zipfile.ZipInfo(path)  # of 1980, the earliest that a zip file can tell
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, source)
    return out.getvalue()


def _sources() -> dict[str, bytes]:
    """The modules that the hook needs: path in the zip to source."""
    found: dict[str, bytes] = {}
    wanted = [ENTRY]
    while wanted:
        module = wanted.pop()
        file = _file_of(module)
        if file is None:  # a name in a module, as in `from infscale.errors import UsageError`
            continue
        path = file[0]
        if path in found:
            continue
        found[path] = file[1].read_bytes()
        parent = module.rpartition(".")[0]
        wanted += [*([parent] if parent else []), *_imports(ast.parse(found[path]))]
    return found


def _file_of(module: str) -> tuple[str, Traversable] | None:
    """Where a module's source is, in the zip and in this installation."""
    root = resources.files("infscale")
    steps = module.split(".")[1:]
    for names in ([*steps, "__init__.py"], [*steps[:-1], f"{steps[-1]}.py"] if steps else []):
        if names and (file := root.joinpath(*names)).is_file():
            return "/".join(["infscale", *names]), file
    return None


def _imports(node: ast.AST) -> Iterator[str]:
    """The names of infscale that a source imports, anywhere but for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "infscale":
            yield str(child.module)
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name.split(".")[0] == "infscale")
        else:
            yield from _imports(child)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replaces a file at once: who reads meanwhile gets the old one or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, mode)  # mkstemp makes it private, whatever the umask
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
