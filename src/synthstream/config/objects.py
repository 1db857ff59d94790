"""Objects of S3, Google Cloud Storage and Azure as paths that are read; why that fails, without a word of settings.

Which store, and with which key, stands in the environment. What a store says may hold keys, signed addresses or names
that are not public: it becomes an ``OSError`` with words of our own, as the system's errors have theirs.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import PosixPath
from typing import Any

import pyarrow.fs as stores
from typing_extensions import override

SCHEMES = ("s3", "gs", "az")
_PATIENCE = 10.0  # seconds for a connection
_ANSWER = 60.0  # seconds for an answer


class ObjectPath(PosixPath):
    """A bucket, or what lies in it, such as ``s3://open/visits/*.parquet``: read and listed, as a path is.

    Every method may raise ``OSError`` with words of our own.

    Example:
        >>> path = ObjectPath("s3://open/visits")
        >>> str(path / "a.csv"), path.parent.bucket
        ('s3://open/visits/a.csv', True)
    """

    @override
    def __str__(self) -> str:
        scheme, *parts = self.parts
        return f"{scheme}//{'/'.join(parts)}"

    @override
    def __fspath__(self) -> str:
        return str(self)

    @property
    def bucket(self) -> bool:
        """Whether it is a bucket whole."""
        return len(self.parts) == 2

    @property
    def key(self) -> str:
        """Bucket and key."""
        return "/".join(self.parts[1:])

    @property
    def store(self) -> Any:
        """The file system that has it."""
        return _store(self.parts[0].rstrip(":"))

    @override
    def open(self, mode: str = "r", *_: Any, encoding: str | None = None, **text: Any) -> Any:
        """Its content, from its beginning."""
        with _told():
            file = io.BufferedReader(_Object(self.store.open_input_file(self.key)), 2**20)
        return file if "b" in mode else io.TextIOWrapper(file, encoding=encoding or "utf-8", **text)

    @override
    def exists(self, **_: Any) -> bool:
        with _told():
            return bool(self.store.get_file_info(self.key).type != stores.FileType.NotFound)

    @override
    def is_dir(self, **_: Any) -> bool:
        with _told():
            return bool(self.store.get_file_info(self.key).type == stores.FileType.Directory)

    @override
    def glob(self, pattern: str, **_: Any) -> Iterator[ObjectPath]:  # type: ignore[override]
        """Objects that lie below and fit a pattern, sorted; no folders, and nothing if nothing lies there.

        A part ``**`` stands for any number of parts. What begins with a dot fits no part that does not.
        """
        parts = pattern.split("/")
        with _told():
            if self.store.get_file_info(self.parts[1]).type == stores.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, "there is no such bucket, or its name may not be asked for")
            deep = len(parts) > 1 or parts == ["**"]
            found = self.store.get_file_info(stores.FileSelector(self.key, recursive=deep, allow_not_found=True))
        start = len(self.parts) - 1
        names = sorted(info.path for info in found if info.type != stores.FileType.Directory)
        return (ObjectPath(self.parts[0], name) for name in names if fits(name.split("/")[start:], parts))

    def version(self) -> str:
        """What changes when its content does: its size and its ETag; another one if it was written again."""
        with _told():
            file = self.store.open_input_file(self.key)
            told = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
            etag = told.get("etag", told.get("content-md5", b"")).decode()
            changed = "" if etag else str(self.store.get_file_info(self.key).mtime_ns)
            return f"object {file.size()} {etag}{changed}"

    @override
    def stat(self, **_: Any) -> os.stat_result:
        """Its size, and in the place of all times the end of the second in which it was written."""
        with _told():
            info = self.store.get_file_info(self.key)
        written = 0 if info.mtime is None else int(info.mtime.timestamp()) + 1
        return os.stat_result((0, 0, 0, 1, 0, 0, info.size or 0, written, written, written))

    lstat = stat

    def put(self, content: bytes) -> None:
        """Write it whole: others see all of it, or what was there before."""
        with _told():
            stream = self.store.open_output_stream(self.key)
            stream.write(content)
            stream.close()


def without_keys(address: str) -> str:
    """An address, or a path. Raises ``ValueError`` if a password or keys stand in it: messages repeat it."""
    scheme, _, rest = address.partition("://")
    user = r"[^/@]*:(?!\d*/)[^@]*@" if scheme not in SCHEMES else r"[^/@]*(:[^@]*)?@"  # a key may hold a slash
    if re.match(user, rest) or re.search(r"[?#;&][^/]*(=|%3D)", rest, re.IGNORECASE):
        raise ValueError("name the place alone: user, password and keys come from the environment")
    return address


def place_of(text: str, local: Callable[[str], Any]) -> Any:
    """A path of this machine, as ``local`` makes it, or one of an object store.

    Raises:
        ValueError: it is an address of another kind, or holds a user or keys.
    """
    scheme, told, rest = text.partition("://")
    if not told:
        return local(text)
    if scheme not in SCHEMES or not rest.strip("/"):
        raise ValueError(f"use a path, or a bucket of {', '.join(f'{one}://' for one in SCHEMES)}")
    return ObjectPath(without_keys(text))


class _Object(io.RawIOBase):
    """An object as a file that Python reads: errors of the store come in our words, whoever reads."""

    def __init__(self, file: Any) -> None:
        self._file = file

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        with _told():
            return int(self._file.readinto(buffer))

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _told():
            return int(self._file.seek(offset, whence))


@cache
def _store(scheme: str) -> Any:
    """The file system of a scheme, with what the environment says."""
    known = os.environ.get
    if scheme == "s3":
        address = known("AWS_ENDPOINT_URL_S3") or known("AWS_ENDPOINT_URL")
        protocol, _, host = (address or "https://").partition("://")
        return stores.S3FileSystem(
            region=known("AWS_REGION") or known("AWS_DEFAULT_REGION"),
            endpoint_override=host.rstrip("/") or None,
            scheme=protocol,
            connect_timeout=_PATIENCE,
            request_timeout=_ANSWER,
            retry_strategy=stores.AwsStandardS3RetryStrategy(max_attempts=3),
        )
    if scheme == "gs":
        return stores.GcsFileSystem(retry_time_limit=timedelta(seconds=_ANSWER))
    account = known("AZURE_STORAGE_ACCOUNT_NAME")
    if account is None:
        raise OSError(errno.EINVAL, "no storage account is named. Set AZURE_STORAGE_ACCOUNT_NAME")
    return stores.AzureFileSystem(account, account_key=known("AZURE_STORAGE_ACCOUNT_KEY"))


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.strerror and "Path does not exist" not in error.strerror:
            raise
        raise type(error)(error.errno or errno.EIO, _why(str(error))) from None
    except (ValueError, NotImplementedError):  # of pyarrow: settings that cannot be
        raise OSError(errno.EINVAL, "the settings in the environment name no store that can be used") from None


def _why(text: str) -> str:
    """The kind of an error of a store, in our words."""
    place = "or what the environment has in its place"
    kinds = {
        "NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound": "there is no such bucket",
        "INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|UNRECOGNIZED_CLIENT": "the store does not know the access key. Check "
        f"AWS_ACCESS_KEY_ID, {place}",
        "SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|AuthenticationFailed": "the store refused the secret key. "
        f"Check AWS_SECRET_ACCESS_KEY, {place}",
        "REQUEST_TIME_TOO_SKEWED|RequestTimeTooSkewed|REQUEST_EXPIRED": "the clock of this machine, or of the store, "
        "is wrong. Set it",
        "ACCESS_DENIED|HTTP status 403|HTTP status 401|PermissionDenied|UNAUTHENTICATED": "the store refused this "
        "user, or knows none. Allow it to list, to read and, for a mirror, to write",
        "NETWORK_CONNECTION|curlCode|timed out|Could not|UNAVAILABLE|DEADLINE": "the store does not answer. Check the "
        "network, and AWS_ENDPOINT_URL if it is set",
        "RESOURCE_NOT_FOUND|NO_SUCH_KEY|does not exist|NotFound": "there is no such object",
    }
    return next((why for words, why in kinds.items() if re.search(words, text)), "the store failed. Try again")


def fits(name: Sequence[str], pattern: Sequence[str], *, hidden: bool = False) -> bool:
    """Whether the parts of a name fit those of a pattern, as in :func:`glob.glob`.

    Args:
        hidden: whether names that begin with a dot fit, too.

    Example:
        >>> fits(["2026", "01", "a.csv"], ["**", "*.csv"]), fits([".a.csv"], ["*.csv"]), fits(["a"], ["a", "b"])
        (True, False, False)
    """
    if not pattern:
        return not name
    first, rest = pattern[0], pattern[1:]
    if first == "**" and fits(name, rest, hidden=hidden):
        return True
    if not name or (name[0].startswith(".") and not hidden and not first.startswith(".")):
        return False
    if first == "**":
        return fits(name[1:], pattern, hidden=hidden)
    return fnmatch.fnmatchcase(name[0], first) and fits(name[1:], rest, hidden=hidden)
