"""``synthstream``, and ``python -m synthstream``: listens for Ctrl-C while the rest is loaded."""

import sys


def main() -> None:
    """Entry point."""
    try:
        from synthstream.cli.app import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("Stopped. Nothing was changed.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
