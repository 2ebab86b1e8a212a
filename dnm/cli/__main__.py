"""`python -m dnm.cli` is `dnm`."""

from dnm.cli.app import main

main()
