"""Basic authentication against bcrypt hashes, fast for a client that was right before. Used by `webconfig`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import threading
from collections.abc import Mapping

import bcrypt

from infscale.web.message import Response, text_response

_MAX_WAITING = 8
_BCRYPT_BYTES = 72  # bcrypt looks at no more; newer libraries refuse longer passwords instead of cutting them
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="infscale", charset="UTF-8"'}


class BasicAuth:
    """Users and their hashes.

    A hash costs about 50 ms of CPU and more, so a right password's fingerprint (keyed, never the password) is kept,
    one for each user. Wrong ones are hashed each time, one at a time, and the same work is done for users that do not
    exist: neither the answer nor its time tells which users do.

    Args:
        hashes: bcrypt hashes by user name; at least one.
    """

    def __init__(self, hashes: Mapping[str, bytes]) -> None:
        self._hashes = dict(hashes)
        self._stand_in = max(hashes.values(), key=lambda hashed: hashed[4:6])  # the highest cost
        self._key = os.urandom(32)
        self._fingerprints: dict[str, bytes] = {}
        self._waiting = threading.Semaphore(_MAX_WAITING)
        self._one_at_a_time = threading.Lock()

    def refusal(self, authorization: str) -> Response | None:
        """Return None when the header's user and password are right, else the answer: 401, or 503 under a flood."""
        credentials = _credentials(authorization)
        if credentials is None:
            return text_response(401, "this server asks for a user and a password", _CHALLENGE)
        user, password = credentials
        fingerprint = hashlib.blake2b(password, key=self._key).digest()
        if hmac.compare_digest(self._fingerprints.get(user, b""), fingerprint):
            return None
        if not self._waiting.acquire(blocking=False):
            return text_response(503, "too many passwords to check at once, try again", {"Retry-After": "1"})
        try:
            with self._one_at_a_time:
                right = self._check(user, password)
        finally:
            self._waiting.release()
        if not right:
            return text_response(401, "user or password is wrong", _CHALLENGE)
        self._fingerprints[user] = fingerprint
        return None

    def _check(self, user: str, password: bytes) -> bool:
        hashed = self._hashes.get(user)
        try:
            right = bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed or self._stand_in)
        except ValueError:  # a password that bcrypt cannot take, such as one with a NUL byte
            return False
        return right and hashed is not None


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    """Return user and password out of an Authorization header, or None if it is not of the Basic scheme."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None
