"""`python -m offcut` is the command line."""

from offcut.cli import main

main()
