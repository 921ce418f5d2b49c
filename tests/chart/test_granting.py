"""The judge of rights is judged: what it lets pass would pass everywhere."""

import pytest

from tests.chart.granting import Account, Grant
from tests.cluster.auditing import Asked

GROUP = "agentterminal.dev"
EVERYWHERE = Grant("", GROUP, "agentterminals", "patch", "")
IN_TEAM_A = Grant("team-a", GROUP, "agentterminals", "patch", "")
ONE_BY_NAME = Grant("team-a", GROUP, "agentterminals", "patch", "one")


def ask(
    *,
    verb: str = "patch",
    resource: str = "agentterminals",
    namespace: str = "team-a",
    name: str = "one",
    code: int = 200,
) -> Asked:
    return Asked(GROUP, resource, verb, namespace, name, "", code, None, is_end=False)


def judge(granted: set[Grant], *requests: Asked) -> Account:
    account = Account("agents", "gateway", granted=set(granted))
    for asked in requests:
        account.judge(granted, asked)
    return account


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        (ask(), [ONE_BY_NAME]),
        (ask(name="two"), [IN_TEAM_A]),
        (ask(namespace="team-b"), [EVERYWHERE]),
        (ask(code=409), [ONE_BY_NAME]),
    ],
    ids=["by its name", "another name", "another namespace", "a conflict, which the right came before"],
)
def test_a_request_shows_the_use_of_the_narrowest_right_that_covers_it(asked: Asked, used: list[Grant]) -> None:
    account = judge({EVERYWHERE, IN_TEAM_A, ONE_BY_NAME}, asked)

    assert sorted(account.used) == used
    assert account.unused == sorted({EVERYWHERE, IN_TEAM_A, ONE_BY_NAME} - set(used))
    assert account.ungranted == account.refused == []


@pytest.mark.parametrize(
    "asked",
    [ask(verb="update"), ask(resource="agentterminals/status"), ask(namespace="team-b"), ask(namespace="", name="")],
    ids=["another verb", "a subresource", "another namespace", "all namespaces"],
)
def test_what_was_done_without_a_right_of_the_chart_is_kept_and_uses_nothing(asked: Asked) -> None:
    account = judge({IN_TEAM_A}, asked)

    assert (account.ungranted, account.unused) == ([asked], [IN_TEAM_A])


def test_what_was_refused_uses_nothing_and_is_kept_by_itself() -> None:
    refused = ask(namespace="team-b", code=403)

    account = judge({IN_TEAM_A}, refused)

    assert (account.refused, account.ungranted, account.unused) == ([refused], [], [IN_TEAM_A])


@pytest.mark.parametrize("star", ["group", "resource", "verb"])
def test_a_star_is_no_right_that_could_be_shown_to_be_used(star: str) -> None:
    words = {"namespace": "", "group": GROUP, "resource": "agentterminals", "verb": "get", "name": "", star: "*"}

    with pytest.raises(AssertionError):
        Grant(**words)
