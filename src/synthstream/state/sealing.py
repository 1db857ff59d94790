"""Seals of what a store holds: a damaged or moved piece is noticed; with a key, a private one cannot be read either.

A piece is sealed for its place: store, table and row. Opened at another place it is refused, so that pieces cannot be
exchanged.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from synthstream.errors import StateCorrupt, StateError

FIRST = 32  # bytes of a sealed piece that tell it from all others: its checksum, or its nonce and tag
_NONCE, _TAG = 12, 16
_VERSION = "synthstream seal 1"


class Plain:
    """A checksum (SHA-256) before the piece. Notices damage, not malice; hides nothing.

    Args:
        store: id of the store.
    """

    name = "none"

    def __init__(self, store: str) -> None:
        self._store = store

    def seal(self, piece: bytes, place: str) -> bytes:
        """The piece as it is stored at a place."""
        return self._checksum(piece, place) + piece

    def open(self, sealed: bytes, place: str) -> bytes:
        """The piece that was stored at a place. Raises ``StateCorrupt`` if it is not what was sealed there."""
        checksum, piece = sealed[:32], sealed[32:]
        if checksum != self._checksum(piece, place):
            raise damaged(place)
        return piece

    def _checksum(self, piece: bytes, place: str) -> bytes:
        checksum = hashlib.sha256(bound(self._store, place))
        checksum.update(piece)
        return checksum.digest()


class Cipher:
    """AES-256-GCM-SIV (RFC 8452): hides a piece, and notices every change of it.

    Nonces are random. A copy of a state that goes on beside the first draws others; should two ever be the same, an
    attacker learns whether two pieces are equal, and nothing else.

    Args:
        key: 32 bytes, kept outside of the store.
        store: id of the store.

    Raises:
        StateError: the library ``cryptography`` is missing.
    """

    name = "AES-256-GCM-SIV"

    def __init__(self, key: bytes, store: str) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
        except ImportError:
            raise StateError("[encryption] needs a library. Run: pip install 'synthstream[encryption]'") from None
        self._store, self._aead = store, AESGCMSIV(derived(key, "seal", store))
        self.check = derived(key, "check", store).hex()

    def seal(self, piece: bytes, place: str) -> bytes:
        nonce = os.urandom(_NONCE)
        closed = self._aead.encrypt(nonce, piece, bound(self._store, place))
        return b"".join((nonce, closed[-_TAG:], closed[:-_TAG]))  # what tells it from all others comes first

    def open(self, sealed: bytes, place: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        if len(sealed) < _NONCE + _TAG:
            raise damaged(place)
        try:
            closed = sealed[_NONCE + _TAG :] + sealed[_NONCE : _NONCE + _TAG]
            return bytes(self._aead.decrypt(sealed[:_NONCE], closed, bound(self._store, place)))
        except InvalidTag:
            raise damaged(place) from None


# Closes pieces, and opens them where they were closed for.
Seal = Plain | Cipher


def derived(key: bytes, purpose: str, store: str) -> bytes:
    """32 bytes that follow from a key, for one purpose in one store; they tell nothing about the key."""
    return hmac.new(key, bound(store, purpose), hashlib.sha256).digest()


def framed(*parts: bytes) -> bytes:
    """Parts one after the other, each behind its length, so that no others read the same."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def bound(store: str, place: str) -> bytes:
    """What ties a piece to its place."""
    return framed(_VERSION.encode(), store.encode(), place.encode())


def damaged(place: str) -> StateCorrupt:
    """The error for a piece that is not what was written. ``place``: public, as are tables and ticks."""
    return StateCorrupt(
        f"The state is damaged, or was changed by something else than Synthstream ({place}). Restore the folder whole."
    )
