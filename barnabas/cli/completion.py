"""`barnabas completion`: prints the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from barnabas.cli.options import ending


@click.command(
    epilog=ending(
        'bash: eval "$(barnabas completion bash)"   # in ~/.bashrc',
        'zsh:  eval "$(barnabas completion zsh)"    # in ~/.zshrc, after compinit',
        "fish: barnabas completion fish > ~/.config/fish/completions/barnabas.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script."""
    kind = get_completion_class(shell)
    assert kind is not None, "click completes for the three"
    click.echo(kind(ctx.find_root().command, {}, "barnabas", "_BARNABAS_COMPLETE").source())
