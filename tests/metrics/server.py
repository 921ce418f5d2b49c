"""A real Prometheus for tests, which scrapes and judges once a second, and a page of metrics without a process."""

import json
import re
import signal
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

import yaml

from controller.lab.processes import build_tethered_command
from tests.support.process import await_true

STOP_SECONDS: Final = 20.0
NAMESPACE: Final = "lab"
"""As service discovery would say where the pods are."""


class Prometheus:
    """One server; use it as a context manager."""

    def __init__(self, folder: Path, ports: Mapping[str, int], rules: Path) -> None:
        """
        Prepare it.

        Args:
            folder: For its configuration, its log and its data.
            ports: What to scrape, by job.
            rules: The rules that it judges.
        """
        self._log = folder / "prometheus.log"
        self._command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ]
        jobs = [
            {
                "job_name": job,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": NAMESPACE}}],
            }
            for job, port in ports.items()
        ]
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                build_tethered_command(self._command, death_signal=signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        await_true(lambda: self._find_port() is not None, "Prometheus to listen", tell=self._log.read_text)
        self._url = f"http://127.0.0.1:{self._find_port()}"
        await_true(self._is_ready, "Prometheus to be ready", tell=self._log.read_text)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def query(self, query: str) -> list[dict[str, Any]]:
        """Ask for the present value of a query."""
        found: list[dict[str, Any]] = self._ask("query", query=query)["result"]
        return found

    def query_at(self, query: str, at: float) -> list[dict[str, Any]]:
        """Ask for the value of a query at a moment, in seconds since 1970."""
        found: list[dict[str, Any]] = self._ask("query", query=query, time=str(at))["result"]
        return found

    def query_between(self, query: str, begin: float, end: float) -> list[dict[str, Any]]:
        """Ask for the values of a query, one a second, between two moments."""
        found: list[dict[str, Any]] = self._ask("query_range", query=query, start=str(begin), end=str(end), step="1")[
            "result"
        ]
        return found

    def series(self, selector: str) -> list[dict[str, str]]:
        """Tell the labels of all series that match, gone ones included."""
        found: list[dict[str, str]] = self._ask("series", **{"match[]": selector})
        return found

    def firing(self) -> set[tuple[str, str]]:
        """Name the alerts that fire, each with the job that it is about."""
        return {
            (alert["labels"]["alertname"], alert["labels"].get("job", ""))
            for alert in self._ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def _ask(self, what: str, **arguments: str) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}", timeout=30
        ) as answer:
            return json.loads(answer.read())["data"]

    def _find_port(self) -> int | None:
        found = re.search(r'msg="Listening on" address=127\.0\.0\.1:(\d+)', self._log.read_text())
        return None if found is None else int(found[1])

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def keeping_port(port: int) -> Iterator[None]:
    """Keep the port of a process that has ended for the next one: nobody is given it, and nobody listens there."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", port))
        yield


class Page:
    """One page of metrics, rendered at each scrape; use it as a context manager."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(render())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="page", daemon=True)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(STOP_SECONDS)
