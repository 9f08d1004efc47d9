"""One module per command: parse, call, print. Nothing heavy is imported before it is needed."""

import sys

from infinipot.common.extras import needed_for
from infinipot.errors import InfiniPotError
from infinipot.hf.light import own_process


def run() -> None:
    """Entry point of the command; says what to install where its packages are missing."""
    try:
        with needed_for("the command line", "cli"):
            import rich  # noqa: F401  used later, where something is drawn

            from infinipot.cli import main
    except InfiniPotError as error:
        sys.exit(f"infinipot: {error}")
    own_process()
    main.run()
