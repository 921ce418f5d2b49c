"""
What a person types as a name, for every command that takes one.

Problem: the API server says what is wrong with a name in its own long words, or answers about something else: a comma
in a name is one more condition to a field selector. Promise: a name that no object can have is refused before anything
is asked, in a sentence that says the rule.

Source: RFC 1123 labels and subdomains, as kube-apiserver 1.37.2 (2026-11) takes them for namespaces and custom objects.
"""

import re
from collections.abc import Callable
from typing import Final

import click

LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
SUBDOMAIN: Final = rf"(?=[^/]{{1,253}}(/|\Z)){LABEL}(\.{LABEL})*"

Check = Callable[[click.Context, click.Parameter, str | None], str | None]


def must_match(pattern: str, sentence: str) -> Check:
    """Ask of what was typed that it has a form, which the sentence tells."""

    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and re.fullmatch(pattern, value, re.ASCII) is None:
            raise click.BadParameter(f"must be {sentence}.")
        return value

    return check


NAME_ARGUMENT: Final = click.argument(
    "name", callback=must_match(SUBDOMAIN, "the name of an object (a-z, 0-9, - and ., at most 253 characters)")
)
NAMESPACE_OPTION: Final = click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    callback=must_match(LABEL, "the name of a namespace"),
    help="Where. Without it: the context's namespace.",
)
