"""`python -m adafed` is the command line."""

from adafed.cli import main

main()
