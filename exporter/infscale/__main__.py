"""The entry: the console script `infscale`, and `python -m infscale` where that is not on the PATH."""

import signal
import sys

_RELOADED = ("sidecar", "recommender")


def main() -> None:
    """Run the command line; ends the process."""
    if sys.argv[1:2] and sys.argv[1] in _RELOADED:
        # SIGHUP would end a process that is not ready to reload yet, so it waits for `infscale.reload` to let it in.
        # Here, since the imports below and those of the command take half a second on a busy machine.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from infscale.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
