"""What is said of a token of one's own that cannot be read."""

import logging
from pathlib import Path

import pytest

from controller.cli.own_token import build_own_token
from controller.settings import OwnTokenSettings, TokenFile
from tests.support.secrecy import build_sprites_token

PLANTED = build_sprites_token("planted")


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", f"{PLANTED} and a word more".encode()])
def test_a_token_file_that_cannot_be_read_is_told_at_the_start_without_a_word_of_it(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    build_own_token(OwnTokenSettings(TokenFile(file)))

    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "AGENTTERMINAL_SPRITES_TOKEN_FILE" in told.getMessage()
    assert vars(told)["file"] == str(file)
    assert "planted" not in caplog.text


def test_a_token_file_that_is_in_order_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text(f"{PLANTED}\n")

    assert build_own_token(OwnTokenSettings(TokenFile(file))) is not None
    assert caplog.records == []
