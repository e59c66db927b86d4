"""The random secret of a run, which its processes prove to each other and never show"""

import hmac
import secrets
from typing import final

from d5ray.errors import ConfigurationError

SECRET_BYTES = 32


@final
class Secret:
    """256 random bits that all processes of a run know, and nobody else.

    It travels by Ray's actor calls alone; its text does not show it.
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) != SECRET_BYTES:
            raise ConfigurationError(f"a secret has {SECRET_BYTES} bytes, found {len(key)}: use Secret.new()")
        self._key = bytes(key)

    @classmethod
    def new(cls) -> "Secret":
        """A secret that nobody can guess, from the system's source of randomness."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> "Secret":
        """The secret that `reveal` gave the text of."""
        try:
            return cls(bytes.fromhex(text))
        except ValueError:
            raise ConfigurationError(
                "a secret is written as 64 hexadecimal digits: use Secret.reveal()"
            ) from None

    def reveal(self) -> str:
        """The secret as 64 hexadecimal digits, for a pipe or a file that only its owner can read."""
        return self._key.hex()

    def mac(self, *pieces: bytes) -> bytes:
        """HMAC-SHA256 (32 bytes, RFC 2104) of the pieces, each bound with its length."""
        message = b"".join(len(piece).to_bytes(8, "little") + piece for piece in pieces)
        return hmac.digest(self._key, message, "sha256")

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[type["Secret"], tuple[bytes]]:
        return Secret, (self._key,)
