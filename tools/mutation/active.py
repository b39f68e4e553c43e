"""Put at the head of every mutated module: calls of a function go to the mutant that MUTANT_UNDER_TEST names.

In the process that runs the tests mutmut does that itself. In a process that a test starts this file does, so that the
mutant lives there too, also in the drain hook's zip application, where no library can be imported. Python 3.9 reads it.
"""

import sys as _mutmut_sys

if "mutmut" in _mutmut_sys.modules:
    from mutmut.mutation.trampoline import wrap_in_trampoline as _mutmut_mutated  # type: ignore[import-not-found,unused-ignore]
else:
    import functools as _mutmut_functools
    import os as _mutmut_os

    _mutmut_active = _mutmut_os.environ.get("MUTANT_UNDER_TEST", "")
    _mutmut_hits = _mutmut_os.environ.get("MUTANT_HITS", "")

    def _mutmut_mutated(mutants, is_classmethod=False):  # type: ignore[no-untyped-def]
        """Like mutmut's own; a call while tests are matched to functions is told in the file MUTANT_HITS."""

        def decorate(function):  # type: ignore[no-untyped-def]
            @_mutmut_functools.wraps(function)
            def call(*args, **kwargs):  # type: ignore[no-untyped-def]
                chosen = mutants["_mutmut_orig"]
                module, _, name = _mutmut_active.rpartition(".")
                if module == function.__module__:
                    chosen = mutants.get(name, chosen)
                elif _mutmut_active == "stats" and _mutmut_hits:
                    with open(_mutmut_hits, "a", encoding="utf-8") as file:
                        file.write(function.__module__ + "." + chosen.__name__.partition("__mutmut_")[0] + "\n")
                if is_classmethod:
                    return getattr(args[0], chosen.__name__)(*args[1:], **kwargs)
                return chosen(*args, **kwargs)

            return call

        return decorate


MutantDict = dict
