"""What a person types wrongly at `kubectl aterm` is refused before anything is asked, with the rule."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.cli.aterm import aterm

NAME = "Invalid value for 'NAME': must be the name of an object"
NAMESPACE = "Invalid value for '-n' / '--namespace': must be the name of a namespace."
CREATED = "'--created': must be a time with its zone, such as 2026-11-30T12:00:00.000Z."
ADOPT = "adopt one --sprite dev --session 2"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        *(
            (f"{command} {name}", NAME)
            for command in ("kill", "hold", "release", "events")
            for name in ("../one", "''")
        ),
        # To a field selector a comma is one more condition, and everybody's Events were shown.
        ("events one,metadata.name!=two", NAME),
        (f"events {'a' * 254}", NAME),
        (f"events {'.'.join(['a' * 64] * 2)}", NAME),
        ("adopt ONE --sprite dev --session 2 --trust-id", NAME),
        *((f"{command} -n {where}", NAMESPACE) for command in ("ps", "kill one") for where in ("../team", "UP", "''")),
        (f"{ADOPT} --created yesterday", CREATED),
        (f"{ADOPT} --created 2026-11-30T12:00:00", CREATED),
        (f"{ADOPT}", "Give one of the two: --created, or --trust-id"),
        (f"{ADOPT} --created 2026-11-30T12:00:00Z --trust-id", "Give one of the two: --created, or --trust-id"),
        (f"{ADOPT} --trust-id --token-secret ''", "'--token-secret': must be a Secret as NAME or NAME/KEY."),
        (
            "adopt one --sprite De/v --session 2 --trust-id",
            "'--sprite': must be the name of a sprite (a-z, 0-9 and -).",
        ),
    ],
)
def test_what_is_typed_wrongly_is_refused_with_its_rule(typed: str, sentence: str) -> None:
    ended = CliRunner().invoke(aterm, shlex.split(typed))

    assert ended.exit_code == 2, ended.output
    assert sentence in ended.output


@pytest.mark.parametrize(
    "typed",
    [
        f"kill {'a' * 63}.b",
        f"events {'.'.join(['a' * 62] * 4)}",
        f"{ADOPT} --created 2026-11-30T12:00:00.123456789+01:00 --token-secret team.one/a_B.c",
        f"ps -n {'a' * 63}",
    ],
)
def test_what_an_object_may_be_called_is_asked_for(typed: str, tmp_path: Path) -> None:
    missing = tmp_path / "no-kubeconfig"

    ended = CliRunner().invoke(aterm, [*shlex.split(typed), "--kubeconfig", str(missing)])

    # It is the kubeconfig that is wanting, so the words were taken.
    assert ended.exit_code != 2
    assert str(missing) in f"{ended.output}{ended.exception}"
