"""As whom a person speaks: by the token of a kubeconfig before its certificate, and by no certificate without TLS."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import pytest

from controller.client.identity import KubeconfigIdentity, NobodySpeaks
from controller.kube.credentials import ConnectionFacts, Credentials, Login
from controller.lab.certificates import Authority

TOKEN = "token-7f3a"


@dataclass
class Kubeconfig:
    """A login that does not change."""

    facts: ConnectionFacts

    async def current(self) -> Login:
        return Login(self.facts, None, None)


def log_in(*, scheme: str | None, has_certificate: bool) -> KubeconfigIdentity:
    pair = Authority(now=datetime.now(UTC)).issue_client("anna")
    facts = ConnectionFacts(
        server="https://api",
        scheme=scheme,
        token=TOKEN if scheme else None,
        certificate_data=pair.certificate if has_certificate else None,
        private_key_data=pair.key if has_certificate else None,
    )
    return KubeconfigIdentity(cast("Credentials", Kubeconfig(facts)), None)


@pytest.mark.parametrize("has_certificate", [True, False])
@pytest.mark.parametrize("is_encrypted", [True, False])
async def test_the_token_speaks_wherever_there_is_one(has_certificate: bool, is_encrypted: bool) -> None:
    presented = await log_in(scheme="Bearer", has_certificate=has_certificate).present(is_encrypted=is_encrypted)

    assert presented.token == TOKEN
    assert (presented.tls is not None) is is_encrypted
    assert TOKEN not in repr(presented)


@pytest.mark.parametrize("scheme", [None, "Basic"], ids=["no token", "a password"])
async def test_the_certificate_speaks_where_there_is_no_token_and_the_gateway_has_tls(scheme: str | None) -> None:
    presented = await log_in(scheme=scheme, has_certificate=True).present(is_encrypted=True)

    assert presented.token is None
    assert presented.tls is not None


@pytest.mark.parametrize(
    ("scheme", "has_certificate", "is_encrypted"),
    [(None, False, True), (None, True, False), ("Basic", False, True)],
    ids=["nothing at all", "a certificate without TLS", "a password"],
)
async def test_where_nothing_speaks_the_three_ways_are_told(
    scheme: str | None, has_certificate: bool, is_encrypted: bool
) -> None:
    with pytest.raises(NobodySpeaks) as told:
        await log_in(scheme=scheme, has_certificate=has_certificate).present(is_encrypted=is_encrypted)

    assert "There are three ways:" in str(told.value)
    assert all(way in str(told.value) for way in ("token", "certificate", "--as-service-account"))
    assert TOKEN not in str(told.value)
