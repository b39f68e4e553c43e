"""The faults of infscale, as exceptions; expected conditions are values with a reason instead.

    InfscaleError                 anything below; its text is one line for a person
    ├── UsageError                a flag, an argument or a URL that cannot be used        exit 2
    │   ├── ConfigError           a configuration file or an environment variable
    │   ├── PolicyError           a scaling policy
    │   └── StateError            a state file
    ├── ExpositionError           a metrics page that breaks the format                   exit 1
    └── SourceError               a source that could not be read                         exit 1
        └── KubeError             the Kubernetes API; its kin are in infscale.kube.errors

The command line prints the text and exits with `exit_code`; nothing prints a traceback at a user.
Every text says what is wrong, where, what was expected and what to do.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Text that a terminal shows as it is: a page or a file's name may hold control sequences, line breaks or bytes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class InfscaleError(Exception):
    """Any fault that a person is told of in one line, whatever the file or server that it quotes holds."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(" ".join(super().__str__().splitlines()))


class UsageError(InfscaleError):
    """A flag, argument, configuration, policy or state that cannot be used."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file or environment variable that cannot be used.

    Attributes:
        path: where in the file, as `profiles[0].running`; empty for the file as a whole.
    """

    def __init__(self, message: str, *, source: str = "", path: str = "") -> None:
        self.source, self.path = source, path
        where = ": ".join(part for part in (source, path) if part)
        super().__init__(f"{where}: {message}" if where else message)


class PolicyError(UsageError):
    """A scaling policy that contradicts itself or names what does not exist."""


class StateError(UsageError):
    """A state file that is damaged, foreign, from the future or not writable."""


class ExpositionError(InfscaleError):
    """A line of a metrics page that breaks the text format.

    Attributes:
        source: the file or URL.
        line: its number, from 1.
        text: the offending text, cut to 120 characters.
        why: what is wrong with it.
    """

    def __init__(self, source: str, line: int, text: str, why: str) -> None:
        self.source, self.line, self.why = source, line, why
        self.text = text if len(text) <= 120 else text[:117] + "..."
        super().__init__(f"{source}:{line}: {why}: {self.text!r}")


class SourceError(InfscaleError):
    """A file, URL or peer that could not be read."""
