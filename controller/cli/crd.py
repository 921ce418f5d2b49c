"""`agentterminal crd`: print the CustomResourceDefinition that this version of the operator works with."""

import click

from controller.api.crd import render_crd_text


@click.command(name="crd")
def crd_command() -> None:
    """
    Print the CustomResourceDefinition of AgentTerminal as YAML.

    Install it before the operator, and again with each new version: agentterminal crd | kubectl apply
    --server-side -f -
    """
    click.echo(render_crd_text(), nl=False)


if __name__ == "__main__":
    crd_command()
