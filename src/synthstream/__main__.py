"""``synthstream``, and ``python -m synthstream``: listens for Ctrl-C while the rest is loaded."""

import os
import sys


def main() -> None:
    """Entry point."""
    # Matrices are small here. Threads for them wait for each other, and beside another busy process for a long time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from synthstream.cli.app import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("Stopped. Nothing was changed.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
