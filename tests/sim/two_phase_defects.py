"""Mistakes planted into two-phase commit; they extend the list of `defects.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.coordinator.transactions.producer_sessions import ProducerSessions
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_state import TransactionMetadata
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from sim import focuses
from sim.defects import changed, defect
from sim.scenario import Scenario


def _two_phase(scenario: Scenario) -> None:
    """Use only two-phase producers, and no directory of an Apache Kafka."""
    scenario.kafka_epochs = scenario.workers = scenario.meddlers = 0
    scenario.applications, scenario.idempotent_producers = 1, 0
    scenario.use_two_phase(2)


def with_time(scenario: Scenario) -> None:
    focuses.with_kills(scenario)
    _two_phase(scenario)


def with_power(scenario: Scenario) -> None:
    focuses.with_power(scenario)
    _two_phase(scenario)
    scenario.properties.pop("barnabas.transaction.durability", None)


@defect("a prepared transaction times out", "lost", "torn", tweak=with_time)
def prepared_transactions_time_out() -> Iterator[None]:
    apply = TransactionCoordinator.apply

    def apply_and_schedule(
        self: TransactionCoordinator, metadata: TransactionMetadata, *now_ms: int
    ) -> None:
        apply(self, metadata, *now_ms)
        if metadata.is_two_phase and metadata.state.value == "Ongoing":
            began_ms = self._wall.since_ms(metadata.start_ms)
            self.timers.schedule(metadata.transactional_id, began_ms + 500)

    with changed(TransactionCoordinator, "apply", apply_and_schedule):
        yield


@defect("who comes after a crash aborts what was prepared", "lost", "torn", tweak=with_time)
def kept_transactions_are_aborted() -> Iterator[None]:
    init = ProducerSessions.on_init_producer_id

    def on_init_producer_id(self: ProducerSessions, request: Any, context: Any, now_ms: int) -> Any:
        request.keep_prepared_txn = False
        return init(self, request, context, now_ms)

    with changed(ProducerSessions, "on_init_producer_id", on_init_producer_id):
        yield


@defect("a loss of power aborts what was prepared", "lost", "torn", tweak=with_power)
def power_losses_abort_prepared_transactions() -> Iterator[None]:
    on_power_loss = ProducerSessions.on_power_loss

    def of_all(self: ProducerSessions, now_ms: int, **_: bool) -> Any:
        table = self._table
        kept, table.settings = table.settings, TxnSettings(is_durable=False)
        try:
            return on_power_loss(self, now_ms, spares_two_phase=False)
        finally:
            table.settings = kept

    with changed(ProducerSessions, "on_power_loss", of_all):
        yield


@defect("what was prepared is not on the disk", "lost", "torn", tweak=with_power)
def two_phase_answers_do_not_wait_for_the_disk() -> Iterator[None]:
    def answer_at_once(self: ProduceHandler, produce: Any, now_ms: int) -> None:
        self._requests.reply(produce.context.ticket, self._encoded(produce))

    with changed(ProduceHandler, "_answer_when_flushed", answer_at_once):
        yield
