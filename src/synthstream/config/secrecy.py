"""What is secret, and where it may lie: the state folder, and the key that it is encrypted with."""

from __future__ import annotations

import base64
import os
import shlex
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from synthstream.config.keys import Place, Section
from synthstream.errors import ConfigError, StateError

# Of a key: AES-256.
KEY_BYTES = 32

_PATIENCE = 60.0  # seconds


class EncryptionConfig(Section):
    """Keys of [encryption]: where the key of a state is. The key itself never stands in a configuration.

    Args:
        key_file: 32 bytes: raw, in 64 hexadecimal digits, or in base64. Its owner alone may read it.
        key_command: prints the same; it is run without a shell.
    """

    key_file: Place | None = None
    key_command: str | None = None

    def check(self, base: Path, state: Path, releases: Path | None) -> None:
        """Raise ``ConfigError`` unless one key is named, and its file lies apart from the state and from releases."""
        if self.key_file is not None and releases is not None:
            apart(base, self.key_file, releases, which="key")
        if (self.key_file is None) == (self.key_command is None):
            raise ConfigError("encryption: say either key_file or key_command")
        if self.key_file is not None:
            apart(base, state, self.key_file, what="the key")
        elif not self.command:
            raise ConfigError("encryption.key_command: is not a command; quotation marks come in pairs")

    @property
    def command(self) -> tuple[str, ...]:
        """The words of ``key_command``; none, if it is not a command."""
        try:
            return tuple(shlex.split(self.key_command or ""))
        except ValueError:
            return ()

    def key(self, state: Path) -> bytes:
        """The key.

        Args:
            state: the folder that it must not lie in.

        Raises:
            StateError: there is none, or others can read it. What was found is never told.
        """
        if self.key_file is None:
            return _parsed(_printed(self.command), "[encryption] key_command")
        if self.key_file.resolve().is_relative_to(state.resolve()):
            raise StateError(f"key_file {self.key_file} lies in the state folder, which it protects. Keep them apart.")
        return _parsed(_read(self.key_file), f"key_file {self.key_file}")


def _read(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise StateError(
            f"key_file {path}: {error.strerror}. Put the stream's key back there. Only for a stream that has not "
            f"begun, make one: (umask 077; openssl rand -hex 32 > {path})"
        ) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise StateError(f"key_file {path} is not a file.")
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if found.st_mode & 0o077 or found.st_uid not in (0, os.geteuid()):
            raise StateError(f"key_file {path} can be reached by other users. Own it, and run: chmod 600 {path}")
        return file.read(1024)


def _printed(command: tuple[str, ...]) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - the command is the operator's own, and no shell reads it
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_PATIENCE
        )
    except (FileNotFoundError, PermissionError):
        raise StateError("[encryption] key_command failed: its first word is no program that can be run.") from None
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is None or done.returncode:
        raise StateError(
            "[encryption] key_command failed. Run it by itself to see why; its output is not shown here, and "
            "no shell reads it: | and > mean nothing there."
        )
    return done.stdout


def _parsed(text: bytes, origin: str) -> bytes:
    """A key out of one of its three forms."""
    word = text.strip()
    forms = [text, text.removesuffix(b"\n")]
    with suppress(ValueError):
        forms.append(bytes.fromhex(word.decode("ascii")))
    with suppress(ValueError):
        forms.append(base64.b64decode(word, validate=True))
    for form in forms:
        if len(form) == KEY_BYTES:
            return form
    raise StateError(
        f"{origin} holds no key: 32 bytes, raw, in 64 hexadecimal digits or in base64. Make one: openssl rand -hex 32"
    )


def apart(base: Path, inside: str | Path, other: str | Path, *, what: str = "public", which: str = "state") -> None:
    """Raise unless what is secret (the state, its key, a backup) and releases, which are public, or the key are kept
    apart.
    """
    secret, outside = (Path(os.path.normpath(base / path)) for path in (inside, other))
    if secret.is_relative_to(outside) or outside.is_relative_to(secret):
        raise ConfigError(
            f"{str(other)!r} is {what}, and the {which} {str(inside)!r} is secret: neither may lie in the other. Move "
            "one"
        )
