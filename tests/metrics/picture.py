"""
What the pictures in docs/dashboard.md show: every query of the dashboard, as a real Prometheus answered it.

Problem: there is no Grafana where this is built, and a picture that somebody drew by hand shows what somebody wished.
Promise: the world of the alerts' faults is played once more, with people at the gateway and ends that succeed, and each
panel's own queries are put to the Prometheus that watched: over all of it for what is a line, and at the moment
when every fault was seen for what is a number or a table. `make picture` runs this, and then `drawing.py`.

Run: python -m tests.metrics.picture FILE
"""

import asyncio
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.cluster.plane import Cluster, prepare_binaries
from tests.metrics.faults import ASLEEP, WINDOW, Faults, open_faults
from tests.metrics.queries import read_panels
from tests.support.gateway import visiting

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces"
PEOPLE: Final = ("anna", "bert")
ENDS: Final = 6
LINES: Final = 60
LINE_SECONDS: Final = 0.2
ENDED_WITHIN_SECONDS: Final = 30.0


class Pictured(Faults):
    """The world of the faults, with some life in it before they come."""

    began: float = 0.0

    def live(self) -> None:
        """Have people attach, type and throw each other out, and end terminals in good order."""
        self.began = time.time()
        for number in range(ENDS):
            self.world.create(f"brief-{number}", **ASLEEP)
        for number in range(ENDS):
            self.world.await_reason(f"brief-{number}", "Detached", within=ENDED_WITHIN_SECONDS)
            self.world.patch(f"brief-{number}", terminated=True)
        self.lab.create_sprites("asleep")
        self.lab.set_state("asleep", "warm")
        self.world.create("woken", spriteName="asleep", **ASLEEP)
        asyncio.run(self._visit())
        for number in range(ENDS):
            self.world.await_reason(f"brief-{number}", "Confirmed", "Terminated", within=ENDED_WITHIN_SECONDS)

    def read_panels(self) -> dict[str, list[dict[str, Any]]]:
        """Answer every panel's queries, by its title."""
        end = time.time()
        span = {"[$__rate_interval]": f"[{WINDOW}]", "[$__range]": f"[{int(end - self.began)}s]", "$job": ".*"}
        answers: dict[str, list[dict[str, Any]]] = {}
        for panel in read_panels():
            told = []
            for target in panel["targets"]:
                query = target["expr"]
                for name, value in span.items():
                    query = query.replace(name, value)
                if target.get("instant"):
                    found = self.prometheus.query_at(query, self.seen.worst_time)
                    told += [{"labels": one["metric"], "points": [one["value"]]} for one in found]
                else:
                    found = self.prometheus.query_between(query, self.began, end)
                    told += [{"labels": one["metric"], "points": one["values"]} for one in found]
                for one in told[-len(found) :] if found else ():
                    one["legend"] = fill_legend(target.get("legendFormat", ""), one["labels"])
            answers[panel["title"]] = told
        return answers

    async def _visit(self) -> None:
        """One types, another takes their place, and both leave."""
        tokens = {name: await asyncio.to_thread(self._admit, name) for name in PEOPLE}
        async with visiting(self.world.namespace) as visitors:
            anna = await visitors.attach_to_type(self.gateway, tokens["anna"], "well")
            for _ in range(LINES):
                assert anna.close_code is None, anna.texts
                await anna.socket.send_bytes(b"a line of input\n")
                await asyncio.sleep(LINE_SECONDS)
            viewer = await visitors.attach(self.gateway, tokens["bert"], "well", "?view=true")
            await visitors.attach_to_type(self.gateway, tokens["bert"], "well", "?takeover=true")
            await viewer.socket.close()

    def _admit(self, name: str) -> str:
        """Let a person come through every door of the gateway, and give their token."""
        namespace, cluster = self.world.namespace, self.world.cluster
        doors = [f"agentterminals/{right}" for right in ("attach", "takeover", "view")]
        rules = [{"apiGroups": ["agentterminal.dev"], "resources": doors, "verbs": ["create"]}]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        metadata = {"metadata": {"name": name}}
        for path, body in (
            ("roles", {"rules": rules}),
            ("rolebindings", {"roleRef": reference, "subjects": [subject]}),
        ):
            status, answer = cluster.request("POST", f"{RBAC}/{namespace}/{path}", body={**metadata, **body})
            assert status == 201, answer
        return cluster.call(cluster.plane.service_account_token(namespace, name))


def fill_legend(form: str, labels: dict[str, str]) -> str:
    """Put the labels of a series into the legend of its query, as Grafana does."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def main() -> None:
    """Play, and write what was answered."""
    target = Path(sys.argv[1])
    prepare_binaries()
    cluster = Cluster()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_faults(cluster, Path(folder), Pictured, ("agents", "more-agents")) as faults,
        ):
            seen = {"began": faults.began, "panels": faults.read_panels()}
    finally:
        cluster.close()
    target.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
