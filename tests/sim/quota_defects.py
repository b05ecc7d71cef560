"""Mistakes planted into client quotas; they extend the list of `defects.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.broker.logs import metadata
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.rates import Rate, _Sample
from sim import focuses
from sim.defects import changed, defect


@defect("a client above its quota gets no throttle time", "quota", tweak=focuses.with_quotas)
def waits_are_not_told() -> Iterator[None]:
    old = ClientQuotas.on_response

    def on_response(self: ClientQuotas, context: Any, response: Any) -> None:
        old(self, context, response)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = 0

    with changed(ClientQuotas, "on_response", on_response):
        yield


@defect("a client above its quota is not delayed", "quota", tweak=focuses.with_quotas)
def nobody_is_muted() -> Iterator[None]:
    def throttle(self: ClientQuotas, context: Any, *throttles_ms: int) -> int:
        return max(throttles_ms)

    with changed(ClientQuotas, "_throttle", throttle):
        yield


@defect("produced bytes are not counted", "quota", tweak=focuses.with_produce_quotas)
def produces_are_free() -> Iterator[None]:
    old = ClientQuotas.around

    def around(self: ClientQuotas, api: Any, row: Any) -> Any:
        return row if api.name == "Produce" else old(self, api, row)

    with changed(ClientQuotas, "around", around):
        yield


@defect("old usage counts towards a quota for ever", "quota", "stuck",
        tweak=focuses.with_produce_quotas)  # fmt: skip
def nothing_is_forgotten() -> Iterator[None]:
    def reset(self: _Sample, now_ms: int) -> None:
        if not hasattr(self, "total"):
            self.start_ms = self.last_ms = now_ms
            self.total = 0.0

    with changed(_Sample, "reset", reset):
        yield


@defect("a Fetch that gets nothing is counted as if it had got all", "stuck",
        tweak=focuses.with_fetch_quotas)  # fmt: skip
def empty_fetches_are_counted() -> Iterator[None]:
    old = Rate.record

    def record(self: Rate, amount: float, now_ms: int) -> None:
        if amount >= 0:
            old(self, amount, now_ms)

    with changed(Rate, "record", record):
        yield


@defect("quotas are lost with the process", "quota", tweak=focuses.with_produce_quotas_and_kills)
def quotas_end_with_the_process() -> Iterator[None]:
    replay = metadata._replay_setting

    def replay_others(state: ClusterMetadata, kind: str, body: Any) -> bool:
        return kind == "client_quota" or replay(state, kind, body)

    with changed(metadata, "_replay_setting", replay_others):
        yield
