"""The words that a container is started with, as far as its manifest tells them. Pure. Called by `command`.

The kubelet puts values of the environment in the place of `$(NAME)`; a shell does so for `$NAME`, and splits what it
gets. Where a value comes from elsewhere (a field, a Secret, the shell itself) the words are not known, and flags may
hide there: such a command is unreadable.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from infscale.kube.objects import Container

_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_KUBELET_REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SHELL_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_HASH_IN_A_WORD = re.compile(r"(?<=[^\s();<>|&])#")
"""It begins no comment in a shell, but does for shlex, to which it is _HASH for so long."""

_HASH = "\ue000"


class UnreadableError(Exception):
    """The words cannot be told from the manifest; the text says why, for a person."""


def words_of(container: Container) -> list[str]:
    """Command and arguments, with what the environment gives put in; the words of a shell's script where it has one.

    Raises:
        UnreadableError: a word that may be a flag is not known.
    """
    words = [_expanded(word, container.env) for word in (*container.command, *container.args)]
    script = _script(words)
    if script is None:
        for word in words:
            if word.startswith("$"):
                raise UnreadableError(f"{word[:60]!r} comes from outside the manifest, and may be any flag")
        return words
    return _script_words(script, container.env)


def _expanded(word: str, env: Mapping[str, str]) -> str:
    """As the kubelet expands it: `$$(NAME)` is `$(NAME)`, and what is not known stays as it is."""

    def value(match: re.Match[str]) -> str:
        """What stands for a reference of the kubelet's."""
        if match[1]:
            return match[0][1:]
        return env.get(match[2], match[0])

    return _KUBELET_REFERENCE.sub(value, word)


def _script(words: Sequence[str]) -> str | None:
    """The script of `sh -c SCRIPT` or `bash -euo pipefail -c SCRIPT`, wherever that stands; None without one."""
    for position, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] not in _SHELLS:
            continue
        named = False
        for offset, option in enumerate(words[position + 1 : -1], position + 1):
            if named:
                named = False  # the name of an option of the shell's own, as pipefail
                continue
            if not option.startswith(("-", "+")):
                break
            if not option.startswith("--") and "c" in option:
                return words[offset + 1]
            named = option.endswith(("o", "O"))
    return None


def _script_words(script: str, env: Mapping[str, str]) -> list[str]:
    """The words of a script, as the shell splits it: a line that ends in a backslash goes on in the next."""

    def value(match: re.Match[str]) -> str:
        """What stands for a shell's variable."""
        name = match[1] or match[2]
        return match[0] if f"{name}=" in script else env.get(name, match[0])  # what it sets itself is not known here

    known = _SHELL_REFERENCE.sub(value, script.replace("\\\n", ""))
    if "$" in known or "`" in known:
        raise UnreadableError("its shell script takes words from outside the manifest, and they may be any flag")
    lexer = shlex.shlex(_HASH_IN_A_WORD.sub(_HASH, known), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return [word.replace(_HASH, "#") for word in lexer]
    except ValueError as error:
        raise UnreadableError(f"its shell script cannot be read ({error})") from None
