"""The entities that have quotas, the keys of each, and the choice of the quota that applies
(KIP-546, KIP-55).

    key                          for                  value
    producer_byte_rate           users, client ids    bytes a second, whole
    consumer_byte_rate           users, client ids    bytes a second, whole
    request_percentage           users, client ids    percent of the time of the broker's thread
    controller_mutation_rate     users, client ids    partitions created or deleted a second
    connection_creation_rate     addresses            connections a second, whole

If several quotas match a client, the first entity in PRECEDENCE that has the key applies. Clients
share the quota if they have the same user, client id, or both, according to the components of the
entity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.protocol.errors import Code, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
LONGEST_WHOLE_ERROR = 1e-6  # the allowed rounding error of a whole number
_HIGHEST_OF_CLIENTS: dict[str, float] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: math.inf,
    CONTROLLER_MUTATION_RATE: math.inf,
}
_HIGHEST_OF_ADDRESSES: dict[str, float] = {CONNECTION_CREATION_RATE: 2**31 - 1}
_NAMED, _DEFAULT, _ANY = "named", "default", "any"
PRECEDENCE = (
    # user    client id
    (_NAMED, _NAMED),
    (_NAMED, _DEFAULT),
    (_NAMED, _ANY),
    (_DEFAULT, _NAMED),
    (_DEFAULT, _DEFAULT),
    (_DEFAULT, _ANY),
    (_ANY, _NAMED),
    (_ANY, _DEFAULT),
)


class Limit(NamedTuple):
    """A client's quota. All clients with the same user and client id share it; "" means any user or
    client id.
    """

    value: float
    user: str
    client_id: str


def check_entity(entity: Mapping[str, str | None]) -> None:
    """Raise KafkaError INVALID_REQUEST for an entity that cannot have quotas."""
    if not entity:
        raise KafkaError(Code.INVALID_REQUEST, "No entity is named: give a user, client-id or ip.")
    for entity_type, name in entity.items():
        if entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"There are no quotas for '{entity_type}': name a user, a client-id or an ip.",
            )
        if name == "":
            raise KafkaError(
                Code.INVALID_REQUEST, f"The {entity_type} has an empty name: give one."
            )
    if IP in entity and len(entity) > 1:
        raise KafkaError(
            Code.INVALID_REQUEST, "An ip cannot be combined: leave out user and client-id."
        )
    if entity.get(IP) is not None and not is_address(entity[IP] or ""):
        raise KafkaError(Code.INVALID_REQUEST, f"'{entity[IP]}' is not an IP address.")


def is_address(text: str) -> bool:
    """Whether a text is an IPv4 or IPv6 address."""
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_quota(entity: Mapping[str, str | None], key: str, value: float) -> None:
    """Raise KafkaError INVALID_REQUEST for a quota that the entity cannot have.

    NaN is allowed, as with Apache Kafka; it limits nothing.
    """
    bounds = _HIGHEST_OF_ADDRESSES if IP in entity else _HIGHEST_OF_CLIENTS
    highest = bounds.get(key)
    if highest is None:
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"'{key}' cannot be set on {' and '.join(entity)}: use {', '.join(bounds)}.",
        )
    if value <= 0:
        raise KafkaError(Code.INVALID_REQUEST, f"{key}={value}: it must be above 0.")
    if math.isnan(value) or highest == math.inf:
        return
    if value > highest:
        raise KafkaError(Code.INVALID_REQUEST, f"{key}={value}: it must be at most {highest}.")
    if abs(int(value + LONGEST_WHOLE_ERROR) - value) > LONGEST_WHOLE_ERROR:
        raise KafkaError(Code.INVALID_REQUEST, f"{key}={value}: it must be a whole number.")


def limit_of_client(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, user: str, client_id: str
) -> Limit | None:
    """The quota of a client with the given user and client id; None if there is none."""
    for of_user, of_client_id in PRECEDENCE:
        entity: QuotaEntity = ()
        if of_client_id != _ANY:
            entity += ((CLIENT_ID, client_id if of_client_id == _NAMED else None),)
        if of_user != _ANY:
            entity += ((USER, user if of_user == _NAMED else None),)
        value = quotas.get(entity, {}).get(key)
        if value is not None:
            sharers = "" if of_user == _ANY else user, "" if of_client_id == _ANY else client_id
            return Limit(value, *sharers) if math.isfinite(value) else None
    return None


def limit_of_address(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], address: str
) -> float | None:
    """The maximum number of connections per second from an address; None if there is no limit."""
    for name in (address, *_other_spellings(quotas, address), None):
        value = quotas.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
        if value is not None:
            return value if math.isfinite(value) else None
    return None


def _other_spellings(quotas: Iterable[QuotaEntity], address: str) -> list[str]:
    """The other spellings of an IPv6 address for which quotas are set. For example,
    `2001:DB8:0:0:0:0:0:a` is another spelling of `2001:db8::a`.
    """
    if ":" not in address:
        return []
    names = [entity[0][1] for entity in quotas if entity[0][0] == IP]
    return [name for name in names if name and ":" in name and _shortest(name) == address]


@lru_cache(maxsize=4096)
def _shortest(address: str) -> str:
    """An address in the system's spelling (RFC 5952); an IPv4-mapped address without its prefix."""
    import ipaddress

    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
