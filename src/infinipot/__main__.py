"""`python -m infinipot` is the command `infinipot`."""

from infinipot.cli import run

if __name__ == "__main__":
    run()
