"""
The Sprites API token: a secret that is easy to carry and hard to spill.

Problem: a plain string ends up in a log line, an f-string or a traceback sooner or later. Promise: nothing but
`reveal` gives the secret away; everything else (print, format, repr) shows a fingerprint, which names the token in
keys and logs without telling it.
"""

import hashlib
import hmac
import unicodedata
from typing import Final, final

from controller.errors import AgentTerminalError

TOKEN_CHARACTERS: Final = 4096
"""
The longest token we read. Source: sprites-api.md 1 (2026-09): the platform's edge refuses header blocks above about
16 KB, so a longer value could only fail with an error that does not name its cause.
"""


class TokenUnreadable(AgentTerminalError):
    """The text cannot be a Sprites token; the message is one sentence that says why and shows nothing of it."""


@final
class Token:
    """
    One Sprites API token.

    Two tokens are equal if their secrets are; as a key a token may stand for itself.
    """

    __slots__ = ("_secret", "fingerprint")

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.fingerprint: str = hashlib.sha256(secret.encode()).hexdigest()[:12]
        """Twelve hex digits that name the token in keys and logs."""

    @classmethod
    def read(cls, text: str) -> "Token":
        """
        Read a token from a Secret's value or an environment variable.

        A line end before or after it is dropped, since editors and `echo` put one there. Anything else that cannot
        stand in a token is refused rather than repaired: a cut or pasted-together secret should be noticed.

        Raises:
            TokenUnreadable: The text is empty, too long, or holds white space, control or non-ASCII characters.
        """
        secret = text.strip("\r\n")
        if not secret:
            raise TokenUnreadable("The Sprites token is empty; put the token itself into the value.")
        if len(secret) > TOKEN_CHARACTERS:
            raise TokenUnreadable(
                f"The Sprites token has {len(secret)} characters; at most {TOKEN_CHARACTERS} can be sent."
            )
        for character in secret:
            if character.isspace():
                raise TokenUnreadable("The Sprites token has white space in it; put nothing but the token there.")
            if unicodedata.category(character) == "Cc":
                raise TokenUnreadable("The Sprites token has a control character in it; copy the token again.")
            if not character.isascii():
                raise TokenUnreadable("The Sprites token has a character outside ASCII in it; copy the token again.")
        return cls(secret)

    def reveal(self) -> str:
        """Give the secret, for the one header it belongs in."""
        return self._secret

    def __repr__(self) -> str:
        return f"Token({self.fingerprint})"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Token):
            return NotImplemented
        return hmac.compare_digest(self._secret.encode(), other._secret.encode())

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("A token is not written down: pickling it would put the secret into a file or a message.")
