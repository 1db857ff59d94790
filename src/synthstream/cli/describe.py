"""``synthstream describe``."""

from __future__ import annotations

from synthstream.cli.common import ConfigPath, Simulate, say
from synthstream.cli.runtime import when_stopped


def describe_command(config: ConfigPath, simulate: Simulate = False) -> None:
    """Describe the releases, beside them; `run` does so too.

    datapackage.json and croissant.json are for open-data portals, deployment.yaml is an entry for the registry of
    deployments that OpenDP keeps, and settings.toml is for readers with this program.

    Title, publisher, licence and the like are those of [publication] in stream.toml.

    Example: synthstream describe stream.toml
    """
    from synthstream.publish.catalogue import describe, wanted
    from synthstream.publish.folder import DESCRIPTIONS
    from synthstream.publish.outlets import configured

    loaded = configured(config, simulate=simulate)
    when_stopped(lambda: "Say the same again; releases are never touched.")
    written = describe(loaded)
    folder = None if loaded.sink is None else loaded.sink.path
    say(f"{', '.join(DESCRIPTIONS)} in {folder} {'describe' if written else 'described already'} the newest release.")
    if missing := wanted(loaded):
        say(f"Portals also ask for {', '.join(missing)}: say them in [publication] of {config}.")
