"""Seals and keys: what is private can be encrypted, and no piece of a state can be exchanged."""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from synthstream import StreamConfig
from synthstream.counts import Counts
from synthstream.errors import ConfigError, StateCorrupt, StateError, StateMismatch
from synthstream.state.sealing import Cipher, Plain, Seal
from synthstream.state.store import Store
from tests.support.at_rest import TOML, close_tick, fill, in_files, opened, plant, story

KEY = bytes(range(32))
SEALS: dict[str, Callable[[], Seal]] = {"plain": lambda: Plain("store"), "cipher": lambda: Cipher(KEY, "store")}


@pytest.mark.parametrize("kind", SEALS)
def test_every_changed_byte_of_a_sealed_piece_is_noticed(kind: str) -> None:
    seal, piece = SEALS[kind](), bytes(range(100))
    sealed = seal.seal(piece, "pending 3")
    assert seal.open(sealed, "pending 3") == piece
    assert (piece in sealed) == (kind == "plain")
    for i in range(len(sealed)):
        for bit in range(8):
            damaged = sealed[:i] + bytes([sealed[i] ^ 1 << bit]) + sealed[i + 1 :]
            with pytest.raises(StateCorrupt, match="pending 3"):
                seal.open(damaged, "pending 3")
        with pytest.raises(StateCorrupt):
            seal.open(sealed[:i], "pending 3")
    with pytest.raises(StateCorrupt):
        seal.open(sealed + b"\0", "pending 3")


@pytest.mark.parametrize("kind", SEALS)
def test_a_piece_is_taken_for_no_other_place(kind: str) -> None:
    sealed = SEALS[kind]().seal(b"piece", "pending 3")
    elsewhere = Plain("other") if kind == "plain" else Cipher(KEY, "other")
    for seal, place in ((SEALS[kind](), "pending 4"), (SEALS[kind](), "answer 3"), (elsewhere, "pending 3")):
        with pytest.raises(StateCorrupt):
            seal.open(sealed, place)


def test_equal_pieces_look_different_under_a_key() -> None:
    seal = Cipher(KEY, "store")
    assert len({seal.seal(b"the same", "counter") for _ in range(100)}) == 100


def with_key(folder: Path, key: bytes = KEY) -> str:
    path = folder / "key"
    path.write_bytes(key.hex().encode() + b"\n")
    path.chmod(0o600)
    return TOML + f'[encryption]\nkey_file = "{path}"\n'


def test_with_a_key_counts_are_in_no_file_ever(tmp_path: Path) -> None:
    store = Store(tmp_path / "state", key=KEY)
    for tick in range(25):  # a hundred canaries
        canaries = plant(store, tick)
        assert [in_files(store.folder, canary) for canary in canaries] == [set()] * 4
        assert store.pending(tick).numbers.tobytes() == canaries[0]
        close_tick(store, tick)
        assert [in_files(store.folder, canary) for canary in canaries] == [set()] * 4
    store.close()


def test_an_encrypted_stream_releases_the_same(tmp_path: Path) -> None:
    for name in ("plain", "encrypted"):
        (tmp_path / name).mkdir()
    ends = [story(tmp_path / "plain", TOML), story(tmp_path / "encrypted", with_key(tmp_path))]
    assert ends[0] == ends[1]


def test_neither_key_nor_secret_is_in_the_folder_or_in_a_message(tmp_path: Path) -> None:
    with opened(tmp_path, toml=with_key(tmp_path)) as stream:
        fill(stream, 2)
        secret = stream._store.secret
    with opened(tmp_path, toml=with_key(tmp_path)) as stream:
        assert stream._store.secret == secret
        assert "encryption" not in stream.config.public_json()
        assert KEY.hex() not in repr(stream.config)
    data = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    for value in (KEY, secret):
        forms = (value, value.hex().encode(), base64.b64encode(value))
        assert not any(form in data for form in forms)


@pytest.mark.parametrize("table", ["pending", "counter", "answer"])
def test_exchanged_and_older_pieces_are_refused(tmp_path: Path, table: str) -> None:
    column = {"pending": "counts", "counter": "state", "answer": "drawn"}[table]
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        store = Store(folder, key=KEY)
        plant(store, 3)
        store.close()
    with sqlite3.connect(folders[0] / "store.db") as db:
        older = db.execute(f"SELECT {column} FROM {table}").fetchone()  # noqa: S608
    db.close()
    store = Store(folders[0], key=KEY)
    with store.transaction("newer"):
        store.add_pending(3, Counts(np.arange(5), np.arange(5)))
        store.put_counter({"t": np.array(3)})
        store.forget("answer", 3)
        store.put_answer(3, 0, "question", np.arange(3))
    store.close()
    for folder in folders:  # an older piece at its own place, and another store's
        with sqlite3.connect(folder / "store.db") as db:
            db.execute(f"UPDATE {table} SET {column} = ?", older)  # noqa: S608
        db.close()
        with pytest.raises(StateCorrupt):
            Store(folder, key=KEY)


def test_wrong_missing_and_needless_keys_are_told_apart(tmp_path: Path) -> None:
    toml = with_key(tmp_path)
    with opened(tmp_path, toml=toml) as stream:
        fill(stream, 1)
    with pytest.raises(StateMismatch, match="is encrypted"):
        opened(tmp_path)
    with_key(tmp_path, bytes(32))
    with pytest.raises(StateMismatch, match="not the one"):
        opened(tmp_path, toml=toml)
    Store(tmp_path / "state", read_only=True).close()  # what is public needs no key
    (tmp_path / "key").unlink()
    with pytest.raises(StateError, match="openssl rand"):
        opened(tmp_path, toml=toml)
    with_key(tmp_path)
    with opened(tmp_path, toml=toml) as stream:
        fill(stream, 1)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state-anchor.json").unlink(missing_ok=True)
    Store(tmp_path / "state").close()
    with pytest.raises(StateMismatch, match="without a key"):
        Store(tmp_path / "state", key=KEY)


def key_of(folder: Path, encryption: str) -> bytes:
    config = StreamConfig.from_toml(f"{TOML}[encryption]\n{encryption}\n", base=folder)
    assert config.encryption is not None
    return config.encryption.key(config.state)


@pytest.mark.parametrize(
    "text",
    [KEY, KEY + b"\n", KEY.hex().encode(), KEY.hex().upper().encode() + b"\r\n", base64.b64encode(KEY) + b"\n"],
    ids=["raw", "raw line", "hex", "HEX", "base64"],
)
def test_forms_of_a_key(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "key").write_bytes(text)
    (tmp_path / "key").chmod(0o600)
    assert key_of(tmp_path, 'key_file = "key"') == KEY
    assert key_of(tmp_path, "key_command = \"cat '" + str(tmp_path / "key") + "'\"") == KEY


@pytest.mark.parametrize("text", [b"", b"hunter2-is-private", KEY[:31], KEY.hex()[:63].encode(), KEY * 100])
def test_what_is_no_key_is_not_shown(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "key").write_bytes(text)
    (tmp_path / "key").chmod(0o600)
    for source in ('key_file = "key"', f'key_command = "cat {tmp_path}/key"'):
        with pytest.raises(StateError, match="holds no key") as caught:
            key_of(tmp_path, source)
        assert "hunter2" not in str(caught.value)
        assert KEY.hex()[:10] not in str(caught.value)


@pytest.mark.parametrize(
    "command", ["false", "no-such-command --at-all", "sh -c 'echo hunter2; echo hunter2 >&2; exit 3'"]
)
def test_a_command_that_fails_tells_nothing(tmp_path: Path, command: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StateError, match="key_command failed") as caught:
        key_of(tmp_path, f'key_command = "{command}"')
    assert "hunter2" not in str(caught.value) + "".join(capfd.readouterr())


def test_a_key_command_sees_no_shell(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        key_of(tmp_path, f'key_command = "true; touch {tmp_path}/harm"')
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with_key(tmp_path)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(StateError, match="chmod 600"):
        key_of(tmp_path, 'key_file = "key"')


def test_a_key_in_the_state_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither may lie in the other"):
        key_of(tmp_path, 'key_file = "state/key"')
    (tmp_path / "state").mkdir(mode=0o700)
    with_key(tmp_path / "state")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "state")
    with pytest.raises(StateError, match="lies in the state folder"):
        key_of(tmp_path, 'key_file = "elsewhere/key"')
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(StateError, match="is not a file"):
        key_of(tmp_path, 'key_file = "pipe"')


@pytest.mark.parametrize("keys", ["", 'key_file = "a"\nkey_command = "b"', 'key_command = ""', 'key_command = "a \'b"'])
def test_encryption_is_said_in_one_way(keys: str) -> None:
    with pytest.raises(ConfigError, match="encryption"):
        StreamConfig.from_toml(f"{TOML}[encryption]\n{keys}\n")


def test_a_key_itself_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="no such key here"):
        StreamConfig.from_toml(f'{TOML}[encryption]\nkey = "{KEY.hex()}"\n')


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(StateError, match=r"synthstream\[encryption\]"):
        Cipher(KEY, "store")
