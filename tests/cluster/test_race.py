"""
The race, short: two gateways, everything that fails, and what the sessions received.

The same in long is `agentterminal bench --scenario race`. Whatever this machine has to do besides: counts are judged,
never speeds.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from controller.cli.worlds import GATEWAY_COMMAND, GATEWAY_RULES
from controller.clock import SystemClock
from controller.lab.bench.client import ApiClient
from controller.lab.bench.race import Fault, Outcome, Race, RaceSize
from controller.lab.bench.race_gateways import RACER, Ground
from controller.lab.bench.race_locks import Kind
from controller.lab.bench.race_people import Pace
from controller.lab.rights import GATEWAY_NAME, build_gateway_rights, read_gateway_rules
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World

SIZE = RaceSize(
    terminals=2,
    inputs=0,
    faults=tuple(Fault),
    pace=Pace(burst=5, pause=timedelta(milliseconds=10), stay=timedelta(milliseconds=300)),
    patch_every=timedelta(milliseconds=400),
    calm=timedelta(0),
    within=timedelta(seconds=240),
)


@contextmanager
def open_ground(cluster: Cluster, folder: Path) -> Iterator[Ground]:
    """A namespace with the rights of the chart, an operator, and an emulator whose sessions only take input."""
    namespace = f"race-{os.getpid()}"
    cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    rules = read_gateway_rules(GATEWAY_RULES)
    rights = list(build_gateway_rights(rules, secrets={namespace: ["sprites"]}, namespace=namespace))
    for path, right in rights:
        status, answer = cluster.request("POST", path, body=right)
        assert status == 201, answer
    with EmulatorProcess("--records") as lab, World(cluster, namespace, lab) as world:
        try:
            world.start_operator(LEASE_NAMESPACE=namespace, METADATA_SECONDS="1")
            yield Ground(
                server=cluster.url,
                ca_file=cluster.ca_file,
                gateway_token=cluster.call(cluster.plane.service_account_token(namespace, GATEWAY_NAME)),
                person_token=cluster.call(cluster.plane.service_account_token(namespace, RACER)),
                gateway_command=GATEWAY_COMMAND,
                environment={key: value for key, value in os.environ.items() if not key.startswith("AGENTTERMINAL_")},
                sprites_url=lab.url,
                folder=folder,
                namespace=namespace,
                lease_namespace=namespace,
                secret="sprites",
            )
        finally:
            cluster.empty_namespace(namespace)
            for path, right in rights:
                cluster.request("DELETE", f"{path}/{right['metadata']['name']}")


async def run_race(cluster: Cluster, ground: Ground) -> Outcome:
    async with (
        ApiClient(cluster.url, cluster.admin_token, cluster.ca_file) as api,
        Race(ground, api, SIZE, SystemClock(), Random(5)) as race,
    ):
        return await race.run()


@pytest.mark.timeout(300)
async def test_no_input_of_an_older_epoch_arrives_after_the_first_of_a_newer_one_whatever_fails(
    cluster: Cluster, tmp_path: Path
) -> None:
    with open_ground(cluster, tmp_path) as ground:
        outcome = await run_race(cluster, ground)
    verdict, takeovers = outcome.verdict, {kind: len(times) for kind, times in outcome.takeovers.items()}

    told = "\n".join(("", *outcome.odd))

    assert verdict.violations == 0, told
    # What was on its way when a gateway was killed came late, since it was held back for so long; and only that.
    assert verdict.late > 0
    assert verdict.late_outside_tenure == 0
    assert verdict.late_over_cap == 0
    # Nobody was left waiting: whoever asked spoke, or was sent away.
    assert outcome.stuck == 0, told
    # The judge saw everything, and knows whose it was.
    assert (verdict.strangers, verdict.disordered, outcome.missing, outcome.unmatched) == (0, 0, 0, 0), told
    # It was a race, and every fault took hold.
    assert verdict.inputs > 1000
    assert verdict.epochs > 15
    assert takeovers[Kind.SAME] >= 2, takeovers
    assert takeovers[Kind.OTHER] >= 2, takeovers
    # Each of the three that died was followed at each terminal, now and then by somebody who found its lock swept.
    assert outcome.successions >= 3 * SIZE.terminals, takeovers
    assert takeovers[Kind.DEAD] > 0, takeovers
    assert {fault for fault, times in outcome.faults.items() if times == 0} == set(), outcome.faults
    assert outcome.faults["proven_dead"] >= 3
