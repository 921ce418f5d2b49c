"""Paths and queries: every door knows its own to the letter, and repeats nothing of what it does not know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.gateway.refusals import Refused
from controller.gateway.wishes import (
    ActivityWish,
    AttachWish,
    Door,
    ListWish,
    Mode,
    Probe,
    Right,
    Route,
    Target,
    Wish,
    list_rights,
    read_route,
    read_wish,
)

ONE = Target("team-a", "one.two")
PATH = "/v1/namespaces/team-a/agentterminals/one.two"


def read(method: str, path: str, *query: tuple[str, str], is_upgrade: bool = False) -> Wish | Probe:
    return read_wish(method, path, query, is_upgrade=is_upgrade)


def attach(mode: Mode, columns: int | None = None, rows: int | None = None) -> AttachWish:
    return AttachWish(target=ONE, mode=mode, door=Door.OWN, columns=columns, rows=rows)


def vendor(mode: Mode, session_id: str = "77", sprite: str = "box", **size: int) -> AttachWish:
    return AttachWish(target=ONE, mode=mode, door=Door.SDK, sprite=sprite, session_id=session_id, **size)


@pytest.mark.parametrize(
    ("path", "query", "wish"),
    [
        ("/attach", [], attach(Mode.HOLD)),
        ("/attach", [("view", "false"), ("takeover", "false")], attach(Mode.HOLD)),
        ("/attach", [("view", "true")], attach(Mode.VIEW)),
        ("/attach", [("takeover", "true"), ("columns", "1"), ("rows", "65535")], attach(Mode.TAKEOVER, 1, 65535)),
        ("/sdk/v1/sprites/box/exec/77", [], vendor(Mode.HOLD)),
        ("/sdk/v1/sprites/box/exec/77", [("stdin", "true"), ("detachable", "true")], vendor(Mode.HOLD)),
        ("/sdk/v1/sprites/box/exec/77", [("stdin", "false")], vendor(Mode.VIEW)),
        ("/sdk/v1/sprites/box/exec/77", [("cols", "9"), ("rows", "8")], vendor(Mode.HOLD, columns=9, rows=8)),
        ("/sdk/v1/sprites/box/exec", [("id", "a b")], vendor(Mode.HOLD, "a b")),
        ("/sdk/v1/sprites/a%2Fb/exec/7%207", [], vendor(Mode.HOLD, "7 7", "a/b")),
        ("/sdk-takeover/v1/sprites/box/exec/77", [("max_run_after_disconnect", "0")], vendor(Mode.TAKEOVER)),
    ],
)
def test_a_socket_is_asked_for_by_path_and_query(path: str, query: list[tuple[str, str]], wish: Wish) -> None:
    assert read("GET", PATH + path, *query, is_upgrade=True) == wish


@pytest.mark.parametrize(
    ("method", "path", "wish"),
    [
        ("GET", f"{PATH}/sdk/v1/sprites/box/exec", ListWish(ONE, Mode.HOLD, "box")),
        ("HEAD", f"{PATH}/sdk/v1/sprites/box/exec", ListWish(ONE, Mode.HOLD, "box")),
        ("GET", f"{PATH}/sdk-takeover/v1/sprites/box/exec", ListWish(ONE, Mode.TAKEOVER, "box")),
        ("POST", f"{PATH}/activity", ActivityWish(ONE)),
        ("GET", "/healthz", Probe.HEALTH),
        ("HEAD", "/readyz", Probe.READY),
        ("GET", f"{PATH}/attach", attach(Mode.HOLD)),
    ],
)
def test_everything_else_is_asked_for_without_an_upgrade(method: str, path: str, wish: Wish | Probe) -> None:
    assert read(method, path) == wish


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        # What starts something, or carries a secret.
        *[("/attach", [(key, "S3CRET")], 400) for key in ("env", "cmd", "path", "dir", "cmd[]")],
        *[("/sdk/v1/sprites/box/exec/77", [(key, "S3CRET")], 400) for key in ("env", "cmd", "path", "dir")],
        ("/sdk/v1/sprites/box/exec", [("cmd", "S3CRET"), ("path", "S3CRET")], 405),
        ("/sdk/v1/sprites/box/exec", [], 405),
        ("/sdk/v1/sprites/box/exec/77/kill", [], 405),
        # What no door knows.
        ("/attach", [("token", "S3CRET")], 400),
        ("/attach", [("S3CRET", "")], 400),
        ("/attach", [("id", "77")], 400),
        ("/sdk/v1/sprites/box/exec/77", [("cc", "true")], 400),
        ("/attach", [("view", "yes")], 400),
        ("/attach", [("view", "")], 400),
        ("/attach", [("view", "true"), ("view", "true")], 400),
        ("/attach", [("view", "true"), ("takeover", "true")], 400),
        ("/attach", [("columns", "0")], 400),
        ("/attach", [("columns", "65536")], 400),
        ("/attach", [("rows", "٣")], 400),
        ("/sdk/v1/sprites/box/exec/77", [("id", "77")], 400),
        ("/sdk-takeover/v1/sprites/box/exec/77", [("stdin", "false")], 400),
        ("/sdk/v1/sprites/box/exec/77", [("stdin", "0")], 400),
        ("/sdk/v1/sprites/box/exec/%00", [], 400),
        ("/sdk/v1/sprites/%FF/exec/77", [], 400),
        # No path of ours.
        ("", [], 404),
        ("/attach/", [], 404),
        ("/attach/S3CRET", [], 404),
        ("/exec", [], 404),
        ("/sdk/v1/sprites/box", [], 404),
        ("/sdk/v1/sprites/box/exec/77/attach", [], 404),
    ],
)
def test_whatever_no_door_knows_is_refused_and_not_repeated(path: str, query: list[tuple[str, str]], code: int) -> None:
    with pytest.raises(Refused) as refused:
        read("GET", PATH + path, *query, is_upgrade=True)

    assert refused.value.refusal.code == code
    assert "S3CRET" not in str(refused.value)


@pytest.mark.parametrize("key", ["env", "cmd", "path", "dir", "env[]"])
@pytest.mark.parametrize("path", ["/attach", "/sdk/v1/sprites/box/exec/77"])
def test_whoever_wants_to_start_something_is_told_where_it_belongs(path: str, key: str) -> None:
    with pytest.raises(Refused, match=r"They belong into spec\.launch\."):
        read("GET", PATH + path, (key, "S3CRET"), is_upgrade=True)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces/Team/agentterminals/one/attach",
        "/v1/namespaces/team.a/agentterminals/one/attach",
        f"/v1/namespaces/{'a' * 64}/agentterminals/one/attach",
        f"/v1/namespaces/team/agentterminals/{'a.' * 127}/attach",
        f"/v1/namespaces/team/agentterminals/{'.'.join(['a' * 60] * 5)}/attach",
        "/v1/namespaces/team/agentterminals/one%2Ftwo/attach",
        "/v1/namespaces/team/agentterminals/../attach",
        "/v1/namespaces/team/agentterminals/one/attach\n",
        "//v1/namespaces/team/agentterminals/one/attach",
        "/V1/namespaces/team/agentterminals/one/attach",
    ],
)
def test_a_path_with_a_name_that_no_object_has_is_no_path(path: str) -> None:
    assert read_route(path) is Route.NONE


def test_a_name_may_be_as_long_as_kubernetes_lets_it_be() -> None:
    name = ".".join(["a" * 62] * 4)  # 251 characters
    assert read_route(f"/v1/namespaces/{'n' * 63}/agentterminals/{name}/attach") is Route.ATTACH


@pytest.mark.parametrize(
    ("wish", "rights"),
    [
        (attach(Mode.HOLD), (Right.ATTACH,)),
        (attach(Mode.VIEW), (Right.VIEW,)),
        (attach(Mode.TAKEOVER), (Right.ATTACH, Right.TAKEOVER)),
        (ListWish(ONE, Mode.HOLD, "box"), (Right.ATTACH,)),
        (ListWish(ONE, Mode.TAKEOVER, "box"), (Right.ATTACH, Right.TAKEOVER)),
        (ActivityWish(ONE), (Right.ACTIVITY,)),
    ],
)
def test_each_wish_needs_its_own_rights(wish: Wish, rights: tuple[Right, ...]) -> None:
    assert list_rights(wish) == rights


DOORS = ["/attach", "/activity", "/sdk/v1/sprites/box/exec", "/sdk-takeover/v1/sprites/box/exec/77", ""]
PATHS = st.text(max_size=80) | st.tuples(st.sampled_from(DOORS), st.just("") | st.text(max_size=9)).map(
    lambda parts: PATH + "".join(parts)
)
KEYS = st.sampled_from(["view", "takeover", "id", "rows", "stdin", "tty", "S3CRET"]) | st.text()


def judge(method: str, path: str, query: list[tuple[str, str]], *, is_upgrade: bool) -> Wish | Probe | Refused:
    try:
        return read_wish(method, path, query, is_upgrade=is_upgrade)
    except Refused as refused:
        return refused


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "S3CRET"]),
    path=PATHS,
    query=st.lists(st.tuples(KEYS, st.text()), max_size=3),
    is_upgrade=st.booleans(),
)
def test_whatever_comes_is_a_wish_or_a_refusal_that_repeats_nothing(
    method: str, path: str, query: list[tuple[str, str]], is_upgrade: bool
) -> None:
    verdict = judge(method, path, [(key, f"{value}S3CRET") for key, value in query], is_upgrade=is_upgrade)
    if isinstance(verdict, Refused):
        assert verdict.refusal.code in (400, 404, 405)
        assert "S3CRET" not in str(verdict)
