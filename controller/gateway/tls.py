"""
TLS whose certificate and whose clients' authority change while it is served.

Problem: a certificate is renewed every few weeks and a gateway that has to be restarted for it drops every terminal.
Promise: each handshake sees the newest pair that fits; a pair that is half written or does not fit keeps the older one,
and is logged once; client certificates are asked for only while the cluster's authority is known, and an authority that
was taken away is trusted no more. TLS 1.3 only and without resumption: a resumed session would carry a client
certificate past an authority that no longer vouches for it. Source: Python's `ssl` (read 2026-11).
"""

import asyncio
import hashlib
import logging
import ssl

from controller.errors import AgentTerminalError
from controller.gateway.settings import TlsFiles

log = logging.getLogger(__name__)


class PairUnusable(AgentTerminalError):
    """The certificate and the key to begin with cannot be used. The text names files, settings and the rule."""


class Tls:
    """
    The TLS side of a listening socket.

    Args:
        files: The pair.

    Raises:
        PairUnusable: The files cannot be read, or are no pair.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._authority: str | None = None
        try:
            self._read = _read_digest(files)
            self._newest = self._build()
            self.context = self._build()
        except OSError as error:
            raise PairUnusable(
                f"AGENTTERMINAL_GATEWAY_TLS_CERT_FILE ({files.certificate}) and AGENTTERMINAL_GATEWAY_TLS_KEY_FILE"
                f" ({files.key}) cannot be used: {_explain(error)}. They must be a certificate with its chain and its"
                " private key without a passphrase, both PEM, as a Secret of type kubernetes.io/tls has them."
            ) from error
        """What is listened with. It stays; each handshake goes on with the newest one."""
        self.context.sni_callback = self._choose

    async def refresh(self) -> bool:
        """Take a changed pair; tell whether there was one that fits. It never raises for what is in the files."""
        return await asyncio.to_thread(self._refresh)

    def trust_clients(self, authority: str | None) -> bool:
        """
        Trust client certificates of this authority (PEM, one or more) from now on, and of no other.

        Returns:
            Whether it can be used; None, or what cannot be used, ends client certificates.
        """
        if authority == self._authority:
            return True
        self._authority = authority
        try:
            self._newest = self._build()
        except OSError:
            self._authority = None
        # A connection asks for a certificate, or does not, as the context says that it began with.
        self.context.verify_mode = ssl.CERT_NONE if self._authority is None else ssl.CERT_OPTIONAL
        return self._authority == authority

    def _refresh(self) -> bool:
        try:
            seen = _read_digest(self._files)
        except OSError as error:
            log.warning("The certificate's files cannot be read; the last one is used.", extra={"fault": error.errno})
            return False
        if seen == self._read:
            return False
        self._read = seen
        try:
            self._newest = self._build()
        except OSError:
            log.warning("The certificate's files changed and are no pair; the last one is used.")
            return False
        log.info("The certificate was read again.")
        return True

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.load_cert_chain(self._files.certificate, self._files.key, password="")  # never asks
        if self._authority is not None:
            context.load_verify_locations(cadata=self._authority)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        """Every handshake comes here, whether or not it names a server."""
        connection.context = self._newest


def _explain(error: OSError) -> str:
    """Say what is wrong without a word of what is in the files."""
    if not isinstance(error, ssl.SSLError):
        return error.strerror or type(error).__name__
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate"
    return "at least one of them is not PEM, or its key has a passphrase"


def _read_digest(files: TlsFiles) -> bytes:
    """Tell a change by the content: a mounted Secret changes by its link, within the resolution of a timestamp."""
    return hashlib.sha256(files.certificate.read_bytes() + b"\0" + files.key.read_bytes()).digest()
