"""`python -m infscale`: the console script where it is not on the PATH."""

from infscale.cli import main

main()
