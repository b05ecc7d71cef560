"""The settings of annexes: metrics, the console, and a standby.

They are rows of the broker's table, and not in the folders of the annexes, since requests describe
all settings, also those of annexes that are off.
"""

from __future__ import annotations

from barnabas.broker.settings.setting import (
    boolean,
    integer,
    long,
    optional_string,
    password,
    string,
)


class MetricsRows:
    """Metrics for Prometheus."""

    barnabas_metrics_port = integer(
        -1,
        "The port of the metrics for Prometheus: http://HOST:PORT/metrics; 0: a free port, "
        "which is logged; -1: no metrics. Needs the extra `metrics`.",
        lowest=-1,
        highest=65535,
    )
    barnabas_metrics_host = string(
        "127.0.0.1",
        "The address of barnabas.metrics.port. Everyone who can connect to it can read the "
        "names of topics, groups and errors.",
    )
    barnabas_metrics_detail = string(
        "partitions",
        "Whether topics, and partitions, have their own metrics; with none, the number of "
        "metrics does not depend on topics and groups.",
        choices=("partitions", "topics", "none"),
    )


class ConsoleRows:
    """The console, a page of the broker."""

    barnabas_console_port = integer(
        -1,
        "The port of the console, a page that shows the broker live (--console-port); 0: a free "
        "port, which is printed; -1: no console.",
        lowest=-1,
    )
    barnabas_console_host = string(
        "127.0.0.1",
        "The address of barnabas.console.port. Without users, the console shows all records to "
        "everyone who can connect to it.",
    )
    barnabas_console_writes = boolean(
        False,
        "Whether the console may produce and replay records (--console-writes), with the rights "
        "of its user.",
    )
    barnabas_console_registry = string(
        "",
        "The schema registry with which the console decodes keys and values "
        "(--console-registry): http://HOST:PORT, several separated by commas. Empty: no "
        "decoding. Needs the extra `schemas`.",
    )
    barnabas_console_registry_user = string("", "The user of that registry; empty: none.")
    barnabas_console_registry_password = password("The password of barnabas.console.registry.user.")
    barnabas_console_registry_ca_file = string(
        "",
        "A PEM file with the CA of that registry's certificate; empty: those of the system.",
    )
    barnabas_console_registry_token = password(
        "The token (Bearer) for that registry, instead of a user."
    )
    barnabas_console_registry_certificate_file = string(
        "",
        "A PEM file with the certificate of the console for that registry, and its key unless "
        "barnabas.console.registry.key.file has it.",
    )
    barnabas_console_registry_key_file = string("", "A PEM file with the key of that certificate.")
    barnabas_console_registry_key_password = password("The password of that key.")


class StandbyRows:
    """A standby, and the lease that decides which of two nodes is the leader."""

    barnabas_lease_url = string(
        "",
        "The store of the lease by which two nodes decide which one leads (docs/STANDBY.md): "
        "etcd://HOST:PORT,HOST:PORT/NAME, etcds://... over TLS, or kubernetes://NAMESPACE/NAME. "
        "Empty: there is none.",
    )
    barnabas_lease_ttl_ms = integer(
        3000,
        "How long after the leader's last renewal of the lease the other node takes over. Set "
        "the same on both.",
        lowest=500,
    )
    barnabas_lease_margin_ms = integer(
        500,
        "How long before barnabas.lease.ttl.ms is over the leader stops answering: the most "
        "that the clocks of the two machines may drift apart in that time.",
        lowest=1,
    )
    barnabas_lease_user = string("", "The user of etcd; empty: none.")
    barnabas_lease_password = password("The password of barnabas.lease.user.")
    barnabas_lease_ca_file = string(
        "",
        "The authorities that sign the certificate of etcds:// or kubernetes://; empty: those of "
        "the system, or of the pod.",
    )
    barnabas_replication_port = integer(
        -1,
        "The port where a standby connects (`barnabas start --standby-of HOST:PORT`): "
        "docs/STANDBY.md. 0: a free port, which is logged; -1: no standby.",
        lowest=-1,
        highest=65535,
    )
    barnabas_replication_host = string(
        "127.0.0.1",
        "The address of barnabas.replication.port. An address that other machines can reach "
        "needs TLS: barnabas.replication.security.protocol.",
    )
    barnabas_replication_advertised = string(
        "",
        "With barnabas.lease.url, the HOST:PORT where the other node reaches "
        "barnabas.replication.port, if it differs from this node's own (behind NAT, or published "
        "by a container).",
    )
    barnabas_replication_secret = password(
        "A long secret by which the leader and its standby authenticate each other: set the "
        "same on both. Needed with barnabas.replication.port, barnabas.lease.url and "
        "--standby-of.",
    )
    barnabas_replication_security_protocol = optional_string(
        "SSL: the link uses TLS, by the settings ssl.* of listeners (the standby trusts the "
        "authorities of ssl.truststore.location, and the leader's certificate has to contain its "
        "address); PLAINTEXT: it does not. By default SSL where ssl.keystore.* or "
        "ssl.truststore.* is set.",
        choices=("PLAINTEXT", "SSL"),
    )
    barnabas_replication_mode = string(
        "async",
        "async: answers are sent at once; sync: each answer waits until the standby has all "
        "earlier writes.",
        choices=("async", "sync"),
    )
    barnabas_replication_alone = boolean(
        True,
        "With sync, whether answers are sent while no standby follows; otherwise they wait for "
        "one.",
    )
    barnabas_replication_timeout_ms = integer(
        10_000,
        "How long the standby, or the leader, may send nothing before it counts as disconnected.",
        lowest=100,
    )
    barnabas_replication_catch_up_bytes_per_second = long(
        0,
        "The rate at which a new standby receives the data that it lacks; 0: no limit. It is at "
        "least 1 MiB in half of barnabas.replication.timeout.ms.",
        lowest=0,
    )
