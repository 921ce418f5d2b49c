"""Reviews: who somebody is and what they may, asked over a real connection."""

from typing import Any

import orjson
import pytest

from controller.kube.errors import Forbidden, Malformed, Unreachable
from controller.tenure import Tenure
from tests.kube.doubles import Server, answer, bench, cut
from tests.support.secrecy import Kind, secret

TOKEN = secret(Kind.PERSON)
ALLOWED = {"status": {"allowed": True}}


async def test_a_token_travels_in_the_body_and_nowhere_else(server: Server) -> None:
    server.otherwise = answer(201, {"status": {"authenticated": True, "user": {"username": "anna"}}})
    async with bench(server) as made:
        status = await made.client.review_token(TOKEN, audiences=("gateway",))
        await made.client.review_token(TOKEN)

    assert status == {"authenticated": True, "user": {"username": "anna"}}
    first, second = server.seen
    assert (first.method, first.target) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    assert orjson.loads(first.body) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": TOKEN, "audiences": ["gateway"]},
    }
    assert orjson.loads(second.body)["spec"] == {"token": TOKEN}
    assert TOKEN not in repr((first.target, first.headers))


async def test_a_right_is_asked_for_as_it_stands(server: Server) -> None:
    spec: dict[str, Any] = {"user": "anna", "resourceAttributes": {"verb": "create", "name": "one"}}
    server.otherwise = answer(201, ALLOWED)
    async with bench(server) as made:
        assert await made.client.review_access(spec) == {"allowed": True}

    (seen,) = server.seen
    assert seen.target == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert orjson.loads(seen.body) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }


async def test_a_review_that_a_broken_connection_swallowed_is_asked_again_once(server: Server) -> None:
    server.otherwise = answer(201, ALLOWED)
    async with bench(server) as made:
        server.script = [cut]
        assert await made.client.review_access({}) == {"allowed": True}
        server.script = [cut, cut]
        with pytest.raises(Unreachable):
            await made.client.review_access({})
    assert len(server.seen) == 4


async def test_a_review_needs_no_tenure_and_a_refusal_does_not_repeat_the_token(server: Server) -> None:
    server.otherwise = answer(403, {"message": "no"})
    Tenure(1).end()
    async with bench(server) as made:
        with pytest.raises(Forbidden) as refused:
            await made.client.review_token(TOKEN)
        server.otherwise = answer(201, {"spec": {"token": TOKEN}})
        with pytest.raises(Malformed) as malformed:
            await made.client.review_token(TOKEN)
    assert TOKEN not in f"{refused.value} {malformed.value} {made.reports}"


async def test_a_config_map_is_text(server: Server) -> None:
    server.script = [answer(200, {"data": {"a": "b"}}), answer(200, {}), answer(200, {"data": {"a": 1}})]
    async with bench(server) as made:
        assert await made.client.get_config_map("kube-system", "x") == {"a": "b"}
        assert await made.client.get_config_map("kube-system", "x") == {}
        with pytest.raises(Malformed):
            await made.client.get_config_map("kube-system", "x")
    assert server.seen[0].target == "/api/v1/namespaces/kube-system/configmaps/x"
