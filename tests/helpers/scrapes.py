"""Reads a broker's metrics endpoint."""

from __future__ import annotations

import http.client
import re
import time
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from barnabas.local_broker import LocalBroker

Labels = frozenset[tuple[str, str]]


class Scrape(NamedTuple):
    """The result of a scrape. It has the samples by name and labels, and the type of each
    metric.
    """

    samples: dict[tuple[str, Labels], float]
    kinds: dict[str, str]

    def of(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def labels_of(self, name: str) -> set[str]:
        return {label for (n, labels) in self.samples if n == name for label, _ in labels}


def port_in(log: str) -> int | None:
    """The port of the metrics endpoint, from the broker's log, or None if the log does not show
    it.
    """
    match = re.search(r"metrics on http://127\.0\.0\.1:(\d+)/metrics", log)
    return None if match is None else int(match[1])


def port_of(broker: LocalBroker) -> int:
    """The port of the broker's metrics endpoint."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        port = port_in("".join(broker.output))
        if port is not None:
            return port
        time.sleep(0.01)
    raise AssertionError("".join(broker.output))


def ask(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str]:
    """The status and the text of the response to an HTTP request."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request(method, path, headers=headers)
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    return answer.status, text


def scrape_at(port: int) -> Scrape:
    """Scrape the endpoint. No sample may occur twice."""
    status, text = ask(port)
    assert status == 200
    samples: dict[tuple[str, Labels], float] = {}
    kinds = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name + "_total" * (family.type == "counter")] = family.type
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"{key} is there twice"
            samples[key] = sample.value
    return Scrape(samples, kinds)


def logins_at(broker: LocalBroker) -> dict[str, tuple[int, int]]:
    """How many logins have succeeded and failed, by mechanism, at a broker with one listener."""
    seen = scrape_at(port_of(broker))
    counts: dict[str, dict[str, int]] = {}
    for (name, labels), count in seen.samples.items():
        if name == "barnabas_authentications_total":
            row = dict(labels)
            counts.setdefault(row["mechanism"], {})[row["result"]] = int(count)
    return {one: (row["succeeded"], row["failed"]) for one, row in counts.items()}
