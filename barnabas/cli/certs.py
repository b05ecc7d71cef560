"""`barnabas certs`: a certificate authority, and certificates for tests and first steps."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.certificates import CertificatesError, make_certificates
from barnabas.cli.options import ending


@click.command(
    epilog=ending(
        "barnabas certs certs",
        "barnabas certs certs --host broker.example --host 192.0.2.7 --client alice --client bob",
        "barnabas start --set listeners=SSL://127.0.0.1:9093 "
        "--set ssl.keystore.location=certs/broker.pem",
    )
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name or address by which clients connect to the broker (default: this machine).",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="A client that gets a certificate (default: client).",
)
def certs(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...]) -> None:
    """Make a certificate authority, and certificates for a broker and for clients.

    They are for tests and first steps: the authority's key is in the same directory as the
    certificates that it signed. If the directory already has an authority, it is used again.
    """
    chosen = {}
    if hosts:
        chosen["hosts"] = hosts
    if clients:
        chosen["clients"] = clients
    try:
        written = make_certificates(directory, **chosen)
    except (CertificatesError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for path in written:
        click.echo(str(path))
