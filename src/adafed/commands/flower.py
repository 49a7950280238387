"""The commands under `adafed flower`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adafed.errors import AdafedError

app = typer.Typer(no_args_is_help=True, help="Past one machine: the same experiment on Flower (see docs/flower.md).")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The app's folder; it must not be there yet.")],
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXPERIMENT]",
            help="A TOML file, or the name of a packaged one. Default: AdaFed on digits over three clients.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the experiment. Repeatable.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="One of the experiment's methods, if it is named.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes to wait for. Default: one a client.")] = None,
) -> None:
    """Write an app that `flwr run` takes, simulated or deployed."""
    from adafed.config import config_from, merged, parse_settings
    from adafed.config.studies import load_study
    from adafed.engines.flower.new import copy_own, new_app
    from adafed.engines.station import open_from

    if experiment is None and method is not None:
        raise AdafedError(
            f"--method is {method!r}, and without an experiment there are no methods; name one, as in demo"
        )
    if experiment is None:
        small = {"rounds": 5, "partition": {"name": "dirichlet", "clients": 3, "beta": 0.5}}
        config = config_from(merged(small, parse_settings(settings or [])))
    else:
        config = load_study(experiment).config(method, None, settings or [])
    count = nodes or len(open_from(config).ids)
    root = new_app(folder, config, count)
    copied, elsewhere = copy_own(root, config)
    typer.echo(f"wrote {root}")
    if copied:
        typer.echo(f"copied {', '.join(copied)} into it; files that this code reads must be on every machine")
    if elsewhere:
        typer.echo(f"must be installed on every machine: {', '.join(elsewhere)}")
    typer.echo(f"\n  cd {root}")
    typer.echo(f'  flwr run . local --stream --federation-config "num-supernodes={count}"')


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they go; it must not be there yet.")],
    host: Annotated[str, typer.Option(help="The SuperLink's name or address.")] = "127.0.0.1",
    nodes: Annotated[int, typer.Option(min=0, help="Keys to make for nodes.")] = 3,
) -> None:
    """Make a test authority, the SuperLink's certificate and nodes' keys. Not for production."""
    from adafed.flower import need_flower

    need_flower()  # it brings the cryptography
    from adafed.engines.flower.certificates import make_certificates

    root = make_certificates(folder, host=host, nodes=nodes)
    typer.echo(f"wrote ca.crt, server.pem, server.key and {nodes} node keys to {root}")
