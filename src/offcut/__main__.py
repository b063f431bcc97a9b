"""`python -m offcut` is the command line."""

from offcut.cli import main

# The solver process imports this module again, under another name.
if __name__ == "__main__":
    main()
