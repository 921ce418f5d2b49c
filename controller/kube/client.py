"""
The client of the Kubernetes API: what the operator reads and writes there, and nothing else.

Problem: a write that leaves after the Lease was lost, a write that is sent twice because a connection broke, an answer
that never came. Promise: each write demands its tenure at the moment it is handed to a connection, however long it
waited for one; a write is handed over once; every call has an end; a call that failed says what happened and whether it
may have happened. Few connections, no rate cap. Source: design.md 4.2, gateway.md 3 rule 5;
docs/decisions/2026-11-30-kubernetes-http-client.md.

The elector builds a client of its own: a renewal must not wait behind sixteen other calls.
"""

import asyncio
import base64
import binascii
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.client_reqrep import ClientResponse
from aiohttp.connector import Connection
from yarl import URL

from controller import __version__
from controller.clock import Clock
from controller.kube.calls import (
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    METADATA_LIST,
    READS,
    Call,
    KubeCallReport,
    OnCall,
    Outcome,
    Resource,
    Succeeded,
    Unsettled,
    Verb,
)
from controller.kube.credentials import Credentials, Login
from controller.kube.errors import (
    Gone,
    KubeError,
    Malformed,
    TimedOut,
    Unauthorized,
    Unreachable,
    build_error,
    classify_status,
)
from controller.kube.settings import KubeSettings
from controller.sockets import Sockets
from controller.tenure import Tenure

JsonObject = dict[str, Any]


@dataclass(slots=True)
class _Passage:
    """One request on its way to the wire. It tells afterwards whether it was handed to a connection."""

    tenure: Tenure | None
    is_write: bool
    handed_over: bool = False


class _HandedOverOnce(Exception):
    """A write that was handed to a connection before is not handed to another."""


_PASSAGE: Final[ContextVar[_Passage]] = ContextVar("passage")


class _GuardedRequest(aiohttp.ClientRequest):
    """
    A request that asks for permission when it has its connection, directly before its first byte.

    Without it a write could wait for a connection for as long as a call may take, and leave after the tenure had ended
    (test_a_write_that_waited_for_its_connection_does_not_leave_after_the_tenure_ended); and aiohttp repeats a PUT or
    DELETE by itself whenever its connection breaks (test_no_write_is_sent_twice).
    """

    async def send(self, conn: Connection) -> ClientResponse:
        passage = _PASSAGE.get()
        if passage.is_write and passage.handed_over:
            raise _HandedOverOnce
        if passage.tenure is not None:
            passage.tenure.demand()
        passage.handed_over = True
        return await super().send(conn)


@dataclass(frozen=True, slots=True)
class Page:
    """
    One page of a list.

    Args:
        items: The objects, or their metadata.
        namespace: The namespace that is listed; None is all of them.
        begins: The first page of a pass over that namespace: what earlier pages of it said is void, since the list had
            to begin again.
        resource_version: The version as of which the pass is true.
    """

    items: tuple[JsonObject, ...]
    namespace: str | None
    begins: bool
    resource_version: str


class KubeClient:
    """
    Calls to one API server. For one event loop; closing it twice is fine.

    Args:
        credentials: Who we are, renewed as it goes.
        settings: Times and limits.
        clock: For durations.
        on_call: Told of each call that is over; it must not block.
        tenure: Permits every call of this client, reads included; None leaves reads free.
    """

    def __init__(
        self,
        credentials: Credentials,
        settings: KubeSettings,
        clock: Clock,
        on_call: OnCall,
        *,
        tenure: Tenure | None = None,
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._clock = clock
        self._on_call = on_call
        self._tenure = tenure
        self._turns = asyncio.Semaphore(settings.in_flight)
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection. Calls in flight fail."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await self._sockets.close()

    # --- AgentTerminals ----------------------------------------------------------------------------------------------

    async def get(self, namespace: str, name: str) -> JsonObject:
        """Read one AgentTerminal, consistently: what any write before this call left is seen."""
        return await self.read(Call(verb=Verb.GET, resource=Resource.TERMINALS, namespace=namespace, name=name))

    async def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure) -> JsonObject:
        """
        Write a status by merge patch.

        Args:
            namespace: Where.
            name: Which one.
            patch: The whole body. Put `metadata.resourceVersion` of the object whose uid you checked into it, else the
                write lands on whatever has that name by then.
            tenure: What permits it.

        Raises:
            Conflict: The object changed meanwhile, or is another one.
        """
        return await self.write(
            Call(
                verb=Verb.PATCH,
                resource=Resource.TERMINAL_STATUS,
                namespace=namespace,
                name=name,
                query={"fieldManager": self._settings.field_manager},
                body=orjson.dumps(patch),
                content_type=MERGE_PATCH,
            ),
            tenure=tenure,
        )

    async def patch_json(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        tenure: Tenure,
    ) -> JsonObject:
        """
        Change an AgentTerminal by JSON patch, with whatever tests it carries.

        Args:
            namespace: Where.
            name: Which one.
            operations: In order.
            subresource: None, or `status`.
            tenure: What permits it.

        Raises:
            Invalid: With `spoke` false where a test failed: read again.
        """
        resource = Resource.TERMINALS if subresource is None else Resource(f"{Resource.TERMINALS}/{subresource}")
        return await self.write(
            Call(
                verb=Verb.PATCH,
                resource=resource,
                namespace=namespace,
                name=name,
                query={"fieldManager": self._settings.field_manager},
                body=orjson.dumps(list(operations)),
                content_type=JSON_PATCH,
            ),
            tenure=tenure,
        )

    async def list_pages(
        self,
        *,
        limit: int | None = None,
        metadata_only: bool,
        namespaces: Sequence[str] | None = None,
        field_selector: str | None = None,
    ) -> AsyncIterator[Page]:
        """
        List AgentTerminals page by page, consistently.

        A version that expires between two pages begins the pass over that namespace again; `Page.begins` tells.

        Args:
            limit: Objects in a page; None is the settings'.
            metadata_only: Leave spec and status out.
            namespaces: One after the other; None is all at once.
            field_selector: Such as `status.socket.incarnation=x`: the CRD's path without its first dot.

        Raises:
            Gone: The version expired in every one of the permitted passes.
        """
        for namespace in [None] if namespaces is None else namespaces:
            async for page in self._list_namespace(namespace, limit, field_selector, metadata_only=metadata_only):
                yield page

    async def _list_namespace(
        self, namespace: str | None, limit: int | None, field_selector: str | None, *, metadata_only: bool
    ) -> AsyncIterator[Page]:
        query = {"limit": str(limit or self._settings.page_objects)}
        if field_selector is not None:
            query["fieldSelector"] = field_selector
        expired = 0
        token = ""
        while True:
            call = Call(
                verb=Verb.LIST,
                resource=Resource.TERMINALS,
                namespace=namespace,
                query=query | ({"continue": token} if token else {}),
                accept=METADATA_LIST if metadata_only else JSON,
            )
            try:
                answer = await self.read(call)
            except Gone:
                expired += 1
                if not token or expired >= self._settings.list_passes:
                    raise
                token = ""
                continue
            page, following = _read_page(answer, namespace, begins=not token)
            yield page
            if not following:
                return
            token = following

    async def watch(self, *, namespace: str | None, resource_version: str) -> AsyncIterator[JsonObject]:
        """
        Follow AgentTerminals from a version on, until the server ends it; bookmarks come as events of their own.

        It takes no turn from other calls, but one connection. Silence for longer than `watch_silence` ends it.

        Args:
            namespace: Of which namespace; None is all.
            resource_version: The version after which it begins.

        Raises:
            Gone: The version has expired: list again.
        """
        call = Call(
            verb=Verb.WATCH,
            resource=Resource.TERMINALS,
            namespace=namespace,
            query={"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": resource_version},
        )
        outcome: Outcome = Succeeded.OK
        started = self._clock.monotonic()
        try:
            async with contextlib.aclosing(self._follow(call)) as events:
                async for event in events:
                    yield event
        except KubeError as error:
            outcome = error.failure
            raise
        finally:
            self._on_call(KubeCallReport(call.verb, call.resource, outcome, self._clock.monotonic() - started))

    async def _follow(self, call: Call) -> AsyncGenerator[JsonObject, None]:
        login = await self._credentials.current()
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._settings.connect_timeout.total_seconds(),
            sock_read=self._settings.watch_silence.total_seconds(),
        )
        try:
            answer = await self._open(call, login, _Passage(self._tenure, is_write=False), timeout)
            try:
                if classify_status(answer.status) is not None:
                    raise build_error(answer.status, await answer.read(), request=str(call))
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, lines):
                        yield _read_event(line, call)
            finally:
                answer.close()
        except Unauthorized:
            # Whoever begins again does so with newer credentials, where there are any.
            await self._credentials.renew(login)
            raise
        except TimeoutError:
            raise TimedOut(f"The Kubernetes API has said nothing for too long to {call}.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                f"No answer from the Kubernetes API at {_describe_place(login)} to {call}: {_describe(error)}."
            ) from None

    # --- Everything else ---------------------------------------------------------------------------------------------

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Read a Secret's data, decoded."""
        secret = await self.read(Call(verb=Verb.GET, resource=Resource.SECRETS, namespace=namespace, name=name))
        try:
            return {key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()}
        except (binascii.Error, TypeError, ValueError, AttributeError):
            raise Malformed(f"The data of Secret {namespace}/{name} is not base64.") from None

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """Read a ConfigMap's data."""
        found = await self.read(Call(verb=Verb.GET, resource=Resource.CONFIG_MAPS, namespace=namespace, name=name))
        data = found.get("data") or {}
        if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
            raise Malformed(f"The data of ConfigMap {namespace}/{name} is no text.")
        return data

    async def get_crd(self, name: str) -> JsonObject:
        """Read a CustomResourceDefinition, to see which fields it has."""
        return await self.read(Call(verb=Verb.GET, resource=Resource.CRDS, name=name))

    async def create_event(self, namespace: str, event: Mapping[str, Any], *, tenure: Tenure) -> JsonObject:
        """Create an Event of events.k8s.io/v1."""
        return await self.write(
            Call(verb=Verb.CREATE, resource=Resource.EVENTS, namespace=namespace, body=orjson.dumps(event)),
            tenure=tenure,
        )

    async def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure) -> JsonObject:
        """Change an Event by merge patch: of an Event only `series` may change."""
        return await self.write(
            Call(
                verb=Verb.PATCH,
                resource=Resource.EVENTS,
                namespace=namespace,
                name=name,
                body=orjson.dumps(patch),
                content_type=MERGE_PATCH,
            ),
            tenure=tenure,
        )

    # --- Reviews -----------------------------------------------------------------------------------------------------
    # They are created and leave nothing behind, so they take no tenure, and one that a broken connection swallowed is
    # asked again.

    async def review_token(self, token: str, *, audiences: Sequence[str] = ()) -> JsonObject:
        """
        Ask whose token this is (TokenReview).

        Args:
            token: It goes into the body and nowhere else.
            audiences: For whom it may be meant, one of them being enough; none is the API server itself.

        Returns:
            The review's `status`.
        """
        spec: JsonObject = {"token": token}
        if audiences:
            spec["audiences"] = list(audiences)
        return await self._review(Resource.TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec)

    async def review_access(self, spec: Mapping[str, Any]) -> JsonObject:
        """Ask whether a user may (SubjectAccessReview), and give the review's `status`."""
        return await self._review(Resource.ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)

    async def _review(self, resource: Resource, version: str, kind: str, spec: Mapping[str, Any]) -> JsonObject:
        body = orjson.dumps({"apiVersion": version, "kind": kind, "spec": spec})
        call = Call(verb=Verb.CREATE, resource=resource, body=body)
        try:
            answer = await self._call(call, tenure=None)
        except Unreachable:
            answer = await self._call(call, tenure=None)
        status = answer.get("status")
        if not isinstance(status, dict):
            raise Malformed(f"The Kubernetes API answered without a status to {call}.")
        return status

    # --- Tokens ------------------------------------------------------------------------------------------------------

    async def request_token(
        self, namespace: str, account: str, *, audiences: Sequence[str], lifetime: timedelta
    ) -> JsonObject:
        """
        Ask for a token of a service account (TokenRequest). It leaves nothing behind, so it takes no tenure.

        Args:
            namespace: Of the account.
            account: Its name.
            audiences: For whom it is meant.
            lifetime: How long it is to be good for; the server may choose otherwise.

        Returns:
            The answer's `status`: `token` and `expirationTimestamp`.
        """
        spec = {"audiences": list(audiences), "expirationSeconds": int(lifetime.total_seconds())}
        body = orjson.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        call = Call(verb=Verb.CREATE, resource=Resource.ACCOUNT_TOKENS, namespace=namespace, name=account, body=body)
        answer = await self._call(call, tenure=None)
        status = answer.get("status")
        if not isinstance(status, dict) or not isinstance(status.get("token"), str):
            raise Malformed(f"The Kubernetes API answered without a token to {call}.")
        return status

    # --- Leases ------------------------------------------------------------------------------------------------------
    # They take no tenure: a tenure is what they make. Each has its own time-out, since a Lease outlives no slow call.

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> JsonObject:
        """Read a Lease, consistently."""
        return await self.read(
            Call(verb=Verb.GET, resource=Resource.LEASES, namespace=namespace, name=name, timeout=timeout)
        )

    async def list_leases(self, namespace: str, *, timeout: timedelta) -> Sequence[JsonObject]:
        """List all Leases of a namespace, consistently."""
        answer = await self.read(Call(verb=Verb.LIST, resource=Resource.LEASES, namespace=namespace, timeout=timeout))
        return _read_page(answer, namespace, begins=True)[0].items

    async def create_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> JsonObject:
        """
        Create a Lease.

        Raises:
            Conflict: There is one of that name.
        """
        return await self._call(
            Call(
                verb=Verb.CREATE,
                resource=Resource.LEASES,
                namespace=lease["metadata"]["namespace"],
                body=orjson.dumps(lease),
                timeout=timeout,
            ),
            tenure=None,
        )

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> JsonObject:
        """
        Renew, take or break a Lease that was read before.

        Args:
            lease: The whole Lease. It must carry uid and resourceVersion: a PUT without uid makes a removed Lease anew
                (Verified on kube-apiserver 1.37.2; tests/cluster/test_kube_client.py pins it).
            timeout: The whole of it.

        Raises:
            ValueError: When uid or resourceVersion is missing.
            Conflict: Somebody else was faster, or the Lease is another one.
        """
        metadata = lease["metadata"]
        if not metadata.get("uid") or not metadata.get("resourceVersion"):
            raise ValueError("A Lease is put with its uid and resourceVersion, or not at all.")
        return await self._call(
            Call(
                verb=Verb.UPDATE,
                resource=Resource.LEASES,
                namespace=metadata["namespace"],
                name=metadata["name"],
                body=orjson.dumps(lease),
                timeout=timeout,
            ),
            tenure=None,
        )

    async def delete_lease(
        self, namespace: str, name: str, *, uid: str, resource_version: str, timeout: timedelta
    ) -> None:
        """
        Delete exactly the Lease that was read.

        Raises:
            Conflict: It changed meanwhile, or is another one.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        }
        await self._call(
            Call(
                verb=Verb.DELETE,
                resource=Resource.LEASES,
                namespace=namespace,
                name=name,
                body=orjson.dumps(options),
                timeout=timeout,
            ),
            tenure=None,
        )

    # --- Underneath --------------------------------------------------------------------------------------------------

    async def read(self, call: Call) -> JsonObject:
        """
        Make a call that changes nothing. A connection that broke is replaced once.

        Raises:
            KubeError: What happened.
            ValueError: When the call would change something.
        """
        if call.verb not in READS:
            raise ValueError(f"{call} is a write and needs a tenure.")
        return await self._call(call, tenure=None)

    async def write(self, call: Call, *, tenure: Tenure) -> JsonObject:
        """
        Make a call that changes something. It is sent at most once, and not at all when the tenure has ended.

        Raises:
            KubeError: What happened; `may_have_happened` tells whether the write may have been done all the same.
            TenureEnded: It was not sent.
        """
        return await self._call(call, tenure=tenure)

    async def _call(self, call: Call, *, tenure: Tenure | None) -> JsonObject:
        tenure = tenure or self._tenure
        async with self._turns:
            outcome: Outcome = Unsettled.WITHHELD
            started = self._clock.monotonic()
            try:
                answer = await self._ask(call, tenure)
            except KubeError as error:
                outcome = error.failure
                raise
            except asyncio.CancelledError:
                outcome = Unsettled.CANCELLED
                raise
            else:
                outcome = Succeeded.OK
                return answer
            finally:
                self._on_call(KubeCallReport(call.verb, call.resource, outcome, self._clock.monotonic() - started))

    async def _ask(self, call: Call, tenure: Tenure | None) -> JsonObject:
        """Send it, and once more if a 401 can be answered with newer credentials: what was refused did not happen."""
        if tenure is not None:
            tenure.demand()
        login = await self._credentials.current()
        try:
            return await self._send(call, tenure, login)
        except Unauthorized:
            newer = await self._credentials.renew(login)
            if newer is None:
                raise
        return await self._send(call, tenure, newer)

    async def _send(self, call: Call, tenure: Tenure | None, login: Login) -> JsonObject:
        is_write = call.verb not in READS
        passage = _Passage(tenure, is_write)
        try:
            async with await self._open(call, login, passage, self._build_timeout(call)) as answer:
                body = await answer.read()
                status, retry_after = answer.status, answer.headers.get("Retry-After")
        except TimeoutError:
            raise TimedOut(
                f"The Kubernetes API did not answer in time to {call}.",
                may_have_happened=is_write and passage.handed_over,
            ) from None
        except (aiohttp.ClientError, OSError, _HandedOverOnce) as error:
            raise Unreachable(
                f"No answer from the Kubernetes API at {_describe_place(login)} to {call}: {_describe(error)}.",
                may_have_happened=is_write and passage.handed_over,
            ) from None
        if classify_status(status) is not None:
            raise build_error(status, body, request=str(call), retry_after=retry_after, is_write=is_write)
        return _read_object(body, call, is_write=is_write)

    async def _open(
        self, call: Call, login: Login, passage: _Passage, timeout: aiohttp.ClientTimeout
    ) -> ClientResponse:
        """Send a request, and give its answer as soon as its head is there."""
        entered = _PASSAGE.set(passage)
        try:
            return await self._open_session().request(
                call.method,
                URL(login.facts.server + call.path, encoded=True),
                data=call.body,
                headers=_build_headers(call, login),
                ssl=login.ssl_context if login.ssl_context is not None else True,
                server_hostname=login.facts.tls_server_name if login.ssl_context is not None else None,
                proxy=login.facts.proxy_url,
                timeout=timeout,
                allow_redirects=False,
            )
        finally:
            _PASSAGE.reset(entered)

    def _open_session(self) -> aiohttp.ClientSession:
        """Make the session inside the running loop, at the first call."""
        if self._is_closed:
            raise RuntimeError("The client of the Kubernetes API is closed.")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._settings.connections,
                    keepalive_timeout=self._settings.idle_timeout.total_seconds(),
                    socket_factory=self._sockets.make,
                ),
                headers={"User-Agent": f"agentterminal-operator/{__version__}"},
                cookie_jar=aiohttp.DummyCookieJar(),
                request_class=_GuardedRequest,
                trust_env=False,
            )
        return self._session

    def _build_timeout(self, call: Call) -> aiohttp.ClientTimeout:
        whole = (call.timeout or self._settings.request_timeout).total_seconds()
        return aiohttp.ClientTimeout(
            total=whole, sock_connect=min(whole, self._settings.connect_timeout.total_seconds())
        )


def _build_headers(call: Call, login: Login) -> dict[str, str]:
    headers = {"Accept": call.accept}
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    if login.authorization is not None:
        headers["Authorization"] = login.authorization
    return headers


def _read_object(body: bytes, call: Call, *, is_write: bool) -> JsonObject:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise Malformed(
            f"The Kubernetes API answered with something that is no object to {call}.", may_have_happened=is_write
        )
    return answer


def _read_event(line: bytes, call: Call) -> JsonObject:
    """Read one event of a watch; one that says that the watch is over is raised."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise Malformed(f"The Kubernetes API sent something that is no event to {call}.")
    if event.get("type") == "ERROR":
        code = event["object"].get("code")
        raise build_error(code if isinstance(code, int) else 500, orjson.dumps(event["object"]), request=str(call))
    return event


def _read_page(answer: JsonObject, namespace: str | None, *, begins: bool) -> tuple[Page, str]:
    """Part a list's answer into its page and the token of the next one (empty at the end)."""
    items = answer.get("items")
    metadata = answer.get("metadata")
    if items is None:
        items = []
    if not isinstance(items, list) or not isinstance(metadata, dict):
        raise Malformed("The Kubernetes API answered with something that is no list.")
    page = Page(tuple(items), namespace, begins, str(metadata.get("resourceVersion", "")))
    return page, metadata.get("continue") or ""


def _describe_place(login: Login) -> str:
    parts = urlsplit(login.facts.server)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _describe(error: Exception) -> str:
    """Say what broke, in words that cannot carry a header or a body."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not accepted ({error.certificate_error})"
        case aiohttp.ClientProxyConnectionError():
            return "its proxy cannot be reached"
        case aiohttp.ClientHttpProxyError():
            return f"its proxy answered {error.status}"
        case aiohttp.ClientConnectorSSLError():
            return f"TLS could not be agreed on ({error.os_error.strerror})"
        case aiohttp.ClientConnectorDNSError():
            return f"its name is not known ({error.os_error.strerror})"
        case aiohttp.ClientConnectorError() if error.os_error.errno is not None:
            return os.strerror(error.os_error.errno)
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | _HandedOverOnce():
            return "the connection was cut"
        case aiohttp.ClientOSError():
            return error.strerror or "the connection was cut"
        case _:
            return type(error).__name__
