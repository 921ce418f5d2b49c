"""
What the chart grants to its accounts, and what of it is used.

Problem: a right that nobody uses is a gift to whoever steals the token, and a right that is used without being granted
by the chart comes from somewhere that another cluster does not have. Promise: what is granted is read from the API
server's own bindings and what is used from its audit log, each right with its namespace and its name; there is no list
of exceptions.

A story is told in chapters, since bindings come and go: what is asked in a chapter is judged by what was granted then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chart.site import Site
from tests.cluster.auditing import Asked

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
REFUSED: Final = (401, 403)


@dataclass(frozen=True, order=True)
class Grant:
    """One right: one verb on one resource."""

    namespace: str
    """Where; the empty string is everywhere, and what belongs to no namespace."""
    group: str
    resource: str
    """With its subresource behind a slash."""
    verb: str
    name: str
    """Of which object; the empty string is any."""

    def __post_init__(self) -> None:
        """Refuse a star: it could not be shown to be used."""
        assert "*" not in (self.group, self.resource, self.verb, self.name), self

    def covers(self, asked: Asked) -> bool:
        """Tell whether a request needs this right."""
        return (
            (self.group, self.resource, self.verb) == asked.right
            and self.namespace in ("", asked.namespace)
            and self.name in ("", asked.name)
        )

    def is_within(self, other: "Grant") -> bool:
        """Tell whether another right gives all of this and more."""
        return (
            self != other
            and (self.group, self.resource, self.verb) == (other.group, other.resource, other.verb)
            and other.namespace in ("", self.namespace)
            and other.name in ("", self.name)
        )


@dataclass
class Account:
    """One service account of the chart: what it was granted, and what it has used and asked for in vain."""

    namespace: str
    name: str
    granted: set[Grant] = field(default_factory=set)
    used: set[Grant] = field(default_factory=set)
    ungranted: list[Asked] = field(default_factory=list)
    """What the API server let it do although no binding of the chart says so."""
    refused: list[Asked] = field(default_factory=list)

    @property
    def user(self) -> str:
        """Its name in the audit log."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def unused(self) -> list[Grant]:
        """What was granted and is not shown to be used."""
        return sorted(self.granted - self.used)

    def judge(self, granted: set[Grant], asked: Asked) -> None:
        """
        Judge one request by the grants of its time.

        It shows the use of the narrowest right that covers it. A wider one that covers it too has to be used for
        something else: otherwise it need not be that wide.
        """
        covering = {grant for grant in granted if grant.covers(asked)}
        if asked.code in REFUSED:
            self.refused.append(asked)
        elif not covering:
            self.ungranted.append(asked)
        self.used |= {grant for grant in covering if not any(other.is_within(grant) for other in covering)}


class Book:
    """
    The story of an installation.

    Args:
        site: The cluster.
        namespace: That of the release.
        accounts: The names of the service accounts.
    """

    def __init__(self, site: Site, namespace: str, *accounts: str) -> None:
        self.accounts = {name: Account(namespace, name) for name in accounts}
        self._site = site
        self._namespace = namespace
        self._since = site.mark_audit()
        self._granted: Mapping[str, set[Grant]] = {}

    def begin_chapter(self) -> None:
        """Judge what was asked until now, if there was a chapter, and look at what is granted from now on."""
        since, self._since = self._since, self._site.mark_audit()
        for name, granted in self._granted.items():
            account = self.accounts[name]
            for asked in self._site.read_audit(account.user, since=since, until=self._since):
                # A watch is permitted where it begins, and may outlive the right.
                if asked.resource and not asked.is_end:
                    account.judge(granted, asked)
        self._granted = {name: self._read_granted(name) for name in self.accounts}
        for name, granted in self._granted.items():
            self.accounts[name].granted |= granted

    def _read_granted(self, account: str) -> set[Grant]:
        """Read what the bindings that name an account give."""
        return {grant for binding in self._list_bindings(account) for grant in self._read_binding(binding)}

    def _list_bindings(self, account: str) -> Iterator[Any]:
        subject = ("ServiceAccount", self._namespace, account)
        for kind in ("clusterrolebindings", "rolebindings"):
            for binding in self._get(f"{RBAC}/{kind}")["items"]:
                subjects = binding.get("subjects", ())
                if any((one["kind"], one.get("namespace"), one["name"]) == subject for one in subjects):
                    yield binding

    def _read_binding(self, binding: Any) -> Iterator[Grant]:
        namespace, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
        where = "clusterroles" if role["kind"] == "ClusterRole" else f"namespaces/{namespace}/roles"
        for rule in self._get(f"{RBAC}/{where}/{role['name']}")["rules"]:
            # A page outside of the API would have no resource.
            assert not rule.get("nonResourceURLs"), rule
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames") or ("",):
                            yield Grant(namespace, group, resource, verb, name)

    def _get(self, path: str) -> Any:
        status, answer = self._site.request("GET", path)
        assert status == 200, answer
        return answer
