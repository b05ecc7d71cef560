"""A command's client of a schema registry: its settings, and waits that Ctrl-C can interrupt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.cli.cluster import OF_REGISTRY, check_is_pem
from barnabas.cli.errors import CommandError
from barnabas.cli.waiting import TimeoutOver, Waiting
from barnabas.schemas.registry import RegistrySettings, SchemaRegistry, Wording

# The names of a registry's settings in Kafka's clients, and in RegistrySettings.
_NAMES = {
    "schema.registry.url": "url",
    "basic.auth.user.info": "user_info",
    "schema.registry.basic.auth.user.info": "user_info",
    "bearer.auth.token": "token",
    "schema.registry.bearer.auth.token": "token",
    "schema.registry.ssl.ca.location": "ca",
    "schema.registry.ssl.truststore.location": "ca",
    "schema.registry.ssl.certificate.location": "certificate",
    "schema.registry.ssl.keystore.location": "certificate",
    "schema.registry.ssl.key.location": "key",
    "schema.registry.ssl.key.password": "key_password",
}
_PASSED_OVER = (
    "basic.auth.credentials.source",
    "bearer.auth.credentials.source",
    "schema.registry.basic.auth.credentials.source",
    "schema.registry.bearer.auth.credentials.source",
    "schema.registry.ssl.truststore.type",
    "schema.registry.ssl.keystore.type",
)
_WORDING = Wording(
    "--schema-registry",
    "--schema-registry-ca",
    "basic.auth.user.info=USER:PASSWORD or bearer.auth.token in the file of --client-config",
    "schema.registry.ssl.certificate.location in the file of --client-config",
    " (--timeout)",
)


def registry_settings(properties: Mapping[str, str], url: str = "") -> RegistrySettings:
    """The settings for a registry among a client's settings. The others are ignored.

    Takes:  url, the URL from the option, which overrides the URL in the properties.
    Raises: CommandError for an unknown setting, or a key store that is not a PEM file.
    """
    found: dict[str, str] = {}
    for name, value in properties.items():
        if name in _NAMES:
            found[_NAMES[name]] = value
        elif name.startswith(OF_REGISTRY) and name not in _PASSED_OVER:
            raise CommandError(
                f"--client-config: {name} is unknown; use one of {', '.join(sorted(_NAMES))}"
            )
    for key in ("ca", "certificate"):
        check_is_pem(found.get(key, ""))
    return RegistrySettings(**{"url": "", **found, **({"url": url} if url else {})})


def registry_client(settings: RegistrySettings, timeout_s: float) -> SchemaRegistry:
    """A client of the registry. In a long request, `Waiting` prints what the command waits for."""

    def wait(address: str, what: str, call: Callable[[], Any]) -> Any:
        try:
            return Waiting(address, timeout_s).call(what, call)
        except TimeoutOver as error:  # The text of TimeoutOver would name a broker.
            raise TimeoutError(str(error)) from error

    return SchemaRegistry(settings, timeout_s, _WORDING, wait)
