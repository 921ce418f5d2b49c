"""`agentterminal attach` and `kubectl aterm view`: a terminal, the kubeconfig, and the gateway put together."""

import asyncio
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from controller.cli.login import choose_login
from controller.cli.names import NAME_ARGUMENT, NAMESPACE_OPTION, must_match
from controller.client.attach import Attach, AttachFailed, AttachMode, AttachPlan, Farewell
from controller.client.endings import LOST
from controller.client.finding import LabelledForward, ServiceKube
from controller.client.identity import AccountIdentity, Identity, KubeconfigIdentity, NobodySpeaks, read_authority
from controller.client.keys import read_keys
from controller.client.rights import PersonKube
from controller.client.screen import Screen
from controller.client.settings import SERVICE_PATTERN, SERVICE_SENTENCE, AttachSettings, AttachTimes
from controller.client.way import HTTPS_PORT, Address, PortForward, Service, Way
from controller.clock import SystemClock
from controller.gateway.settings import OWN_AUDIENCE
from controller.kube.credentials import CredentialsUnusable, load_credentials
from controller.kube.settings import KubeSettings
from controller.settings import environment, read_attach_settings
from controller.settings.rules import KEYS, URL, Misread, Rule

F = TypeVar("F", bound=Callable[..., Any])

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_FALLBACK_NAMESPACE: Final = "default"
_ACCOUNT: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """How the gateway is reached, and as whom: what was typed, or None."""

    gateway: str | None
    gateway_service: str | None
    gateway_plain: bool
    gateway_ca: Path | None
    audience: tuple[str, ...]
    as_service_account: str | None
    detach_keys: str | None
    kubeconfig: str | None
    context: str | None
    namespace: str | None


def _check(rule: Rule[Any]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Ask of an option what is asked of the variable that stands for it."""

    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        try:
            if value is not None:
                rule.read(value)
        except Misread:
            raise click.BadParameter(f"must be {rule.sentence}.") from None
        return value

    return check


def _reaching(command: F) -> F:
    """Give a command the options by which it reaches the gateway."""
    options = (
        NAMESPACE_OPTION,
        click.option(
            "--gateway",
            metavar="URL",
            callback=_check(URL),
            help="The gateway's address, https (http only to this machine). Without it: $AGENTTERMINAL_ATTACH_URL.",
        ),
        click.option(
            "--gateway-service",
            metavar="NAMESPACE[/NAME[:PORT]]",
            callback=must_match(SERVICE_PATTERN, SERVICE_SENTENCE),
            help="The gateway's Service, reached by kubectl port-forward. A NAMESPACE alone is where to find it by its"
            " labels. Without it: $AGENTTERMINAL_ATTACH_SERVICE, else it is looked for in all namespaces.",
        ),
        click.option(
            "--gateway-plain",
            is_flag=True,
            help="Behind the port-forward the gateway speaks plain HTTP, since something in front of it ends TLS.",
        ),
        click.option(
            "--gateway-ca",
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Whom to trust for the gateway's certificate, PEM. Without it: $AGENTTERMINAL_ATTACH_CA_FILE, else the"
            " system's list.",
        ),
        click.option(
            "--as-service-account",
            metavar="NAMESPACE/NAME",
            callback=must_match(_ACCOUNT, "a service account as NAMESPACE/NAME"),
            help="Speak as this service account, with a token that you are allowed to ask for.",
        ),
        click.option(
            "--audience",
            metavar="AUDIENCE",
            multiple=True,
            help="For whom that token is meant. May be repeated.  [default: agentterminal-gateway]",
        ),
        click.option(
            "--detach-keys",
            metavar="KEYS",
            callback=_check(KEYS),
            help="What to type to leave. Without it: $AGENTTERMINAL_ATTACH_DETACH_KEYS, else ctrl-p,ctrl-q.",
        ),
        click.option("--kubeconfig", metavar="FILE", help="The kubeconfig. Without it: $KUBECONFIG, else the usual."),
        click.option("--context", metavar="NAME", help="Its context. Without it: the current one."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(name="attach")
@NAME_ARGUMENT
@click.option("--view", is_flag=True, help="Only look on.")
@click.option("--takeover", is_flag=True, help="Throw out whoever types now.")
@_reaching
def attach_command(*, name: str, view: bool, takeover: bool, **options: Any) -> int:
    """
    Attach this terminal to the AgentTerminal NAME.

    You type in its session and see what it shows, through the gateway. ctrl-p ctrl-q leaves the session, which goes on.
    A lost connection is opened again, and that is said. The terminal is put back as it was at every end, a kill -9 of
    this process included.

    Exit code: that of the process, where its exit was seen; 0 after the detach keys; 255 when the socket ended
    otherwise (thrown out, refused, lost); 2 when it was used wrongly; 130, 143 or 129 when it was ended by Ctrl-C,
    SIGTERM or a hang-up.
    """
    if view and takeover:
        raise click.UsageError("--view looks on and --takeover types: give one of the two.")
    mode = AttachMode.VIEW if view else AttachMode.TAKE_OVER if takeover else AttachMode.TYPE
    return _attach(name, mode, _Options(**options))


@click.command(name="view")
@NAME_ARGUMENT
@_reaching
def view_command(*, name: str, **options: Any) -> int:
    """
    Look on at the session of NAME, without typing.

    The same as `attach --view`. A paused sprite is not woken. Ctrl-C leaves as well.
    """
    return _attach(name, AttachMode.VIEW, _Options(**options))


def _attach(name: str, mode: AttachMode, options: _Options) -> int:
    settings = read_attach_settings(environment())
    try:
        received, farewell = asyncio.run(_run_until_signalled(_serve(name, mode, options, settings)))
    except (AttachFailed, NobodySpeaks, CredentialsUnusable) as failed:
        click.echo(f"Error: {failed}", err=True)
        return LOST
    if received is not None or farewell is None:
        return 128 + (received or signal.SIGINT)
    if farewell.sentence:
        click.echo(f"[aterm] {farewell.sentence}", err=True)
    return farewell.exit_code


async def _serve(name: str, mode: AttachMode, options: _Options, settings: AttachSettings) -> Farewell:
    clock, times = SystemClock(), AttachTimes()
    kube_settings = KubeSettings(login=choose_login(options.kubeconfig, options.context))
    credentials = await load_credentials(kube_settings, clock=clock)
    authority = read_authority(options.gateway_ca or settings.ca_file)
    keys = options.detach_keys or settings.detach_keys
    plan = AttachPlan(
        namespace=options.namespace or credentials.facts.namespace or _FALLBACK_NAMESPACE,
        name=name,
        mode=mode,
        keys=read_keys(keys),
        keys_words=keys.replace(",", " "),
    )
    screen = Screen()
    async with PersonKube(credentials, kube_settings, clock, lambda _: None) as kube:
        way = _choose_way(options, settings, times, kube, screen)
        identity: Identity = KubeconfigIdentity(credentials, authority)
        if options.as_service_account is not None:
            audiences = options.audience or (OWN_AUDIENCE,)
            identity = AccountIdentity(kube, options.as_service_account, audiences, authority, clock)
        attach = Attach(plan, way, identity, screen, clock, times)
        async with _watching_the_window(attach):
            return await attach.run()


def _choose_way(
    options: _Options, settings: AttachSettings, times: AttachTimes, kube: ServiceKube, screen: Screen
) -> Way:
    """Choose how to reach the gateway: what was typed before what was set, an address before a port-forward."""
    url = options.gateway or (None if options.gateway_service else settings.url)
    if url is not None:
        return Address(url)
    login: list[str] = []
    for word, value in (("--kubeconfig", options.kubeconfig), ("--context", options.context)):
        login += [word, value] if value is not None else []

    def build(service: Service) -> Way:
        return PortForward(shutil.which("kubectl"), service, login, times, is_plain=options.gateway_plain)

    said = options.gateway_service or settings.service
    if said is None:
        if options.gateway_plain:
            raise AttachFailed(
                "Without TLS nothing proves that a Service is the gateway, so it is not searched for everywhere. Name"
                " it: --gateway-service NAMESPACE/NAME, or its namespace: --gateway-service NAMESPACE."
            )
        namespace = None
    else:
        match = re.fullmatch(SERVICE_PATTERN, said, re.ASCII)
        # The option and the variable have been held against the same pattern.
        assert match is not None
        namespace = match["namespace"]
        if match["name"] is not None:
            return build(Service(namespace, match["name"], int(match["port"] or HTTPS_PORT)))
    return LabelledForward(kube, namespace, build, lambda found: screen.tell(f"The gateway is {found}, by its labels."))


@asynccontextmanager
async def _watching_the_window(attach: Attach) -> AsyncIterator[None]:
    """Hear of a window that changes its size, and of a process that was stopped and goes on."""
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        attach.screen.enter()
        attach.note_size()

    loop.add_signal_handler(signal.SIGWINCH, attach.note_size)
    loop.add_signal_handler(signal.SIGCONT, go_on)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGCONT)


async def _run_until_signalled(
    work: Coroutine[Any, Any, Farewell],
) -> tuple[signal.Signals | None, Farewell | None]:
    """Run until it ends, or a signal ends it: the way out of every `with` block is taken either way."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None

    def end(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        return None, await work
    except asyncio.CancelledError:
        if not received:
            raise
        return received[0], None
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
