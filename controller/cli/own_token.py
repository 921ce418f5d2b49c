"""How a process of ours comes by its own Sprites token, where it has one."""

import logging
from typing import Final

from controller.engine.tokens import OwnToken
from controller.settings import OwnTokenSettings
from controller.sprites.token import Token, TokenUnreadable

log: Final = logging.getLogger(__name__)


def build_own_token(settings: OwnTokenSettings | None) -> OwnToken | None:
    """Give the operator's own token, read again whenever its file changes."""
    if settings is None:
        return None
    source = settings.source

    def read() -> Token | None:
        if isinstance(source, Token):
            return source
        try:
            return Token.read(source.path.read_text())
        except (OSError, UnicodeDecodeError, TokenUnreadable) as error:
            log.warning(
                "The own Sprites token cannot be read; terminals that need it wait. Put one where "
                "AGENTTERMINAL_SPRITES_TOKEN_FILE says: it is read again.",
                extra={"fault": type(error).__name__, "file": str(source.path)},
            )
            return None

    read()  # Told at the start, and not only when the first terminal needs it.
    return OwnToken(read, settings.namespaces, settings.sprites)
