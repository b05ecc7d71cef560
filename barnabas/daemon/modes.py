"""The three ways to start: a broker by itself, a standby, and a node of a pair that has a lease."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from barnabas.broker.rim.clocks import busy_ns, steady_ms, wall_ms
from barnabas.broker.rim.flusher import sync_together
from barnabas.broker.rim.system_ids import SystemIds
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.arguments import StartError
from barnabas.daemon.configure import (
    check_metrics_library,
    log_as_json,
    read_config,
    set_log_levels,
)
from barnabas.daemon.garbage import exclude_loaded
from barnabas.daemon.listening import listen_beside, listen_for_each
from barnabas.daemon.opening import open_broker
from barnabas.daemon.serving import Daemon
from barnabas.daemon.signals import SIGNALS, Signals
from barnabas.storage.disk import OsDisk, is_out_of_space, sync_file_system
from barnabas.storage.files.checkpoints import STANDBY_NOTE_NAME
from barnabas.storage.log.log_directory import LogDirectoryError

if TYPE_CHECKING:
    from barnabas.replication.rim.pair_member import PairMember

STANDBY_OF = "--standby-of"


def _unusable_data_directory(config: BrokerConfig, error: OSError) -> StartError:
    """The error for a data directory that the operating system does not let the broker use, or that
    has no space for the files that the start has to write.
    """
    if is_out_of_space(error):
        return StartError(
            f"the data directory {config.data_dir} has no space for the files of this start: "
            f"{error.strerror or error}; free some, and start again: no data are lost"
        )
    is_file = isinstance(error, FileExistsError | NotADirectoryError)
    why = "it is a file" if is_file else error.strerror or str(error)
    return StartError(
        f"cannot use the data directory {config.data_dir}: {why}; --data-dir DIR names another"
    )


def start(options: argparse.Namespace) -> int:
    """Start in the mode that the options and settings request. Gives: the exit code. Raises:
    StartError.
    """
    began = time.perf_counter()
    if options.test_clock_ahead and options.test_control is None:
        raise StartError("--test-clock-ahead needs --test-control PORT")
    set_log_levels(options.log_levels)
    config = read_config(options)
    if config.barnabas_log_format == "json":
        log_as_json()
    if config.barnabas_metrics_port >= 0:
        check_metrics_library()
    # with more descriptors, more files can stay open
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.standby_of is not None:
        if config.barnabas_lease_url:
            raise StartError(
                "--standby-of: with barnabas.lease.url the lease decides which node follows: "
                "leave it out"
            )
        return _stand_by(config, options.standby_of)
    _check_replication(options, config)
    if config.barnabas_lease_url:
        member = _wait_until_leading(options, config)
        began = time.perf_counter()
        return 0 if member is None else _open_and_serve(options, config, began, member)
    return _open_and_serve(options, config, began)


def _stand_by(config: BrokerConfig, leader: str) -> int:
    """Run as the standby of a leader until a signal. Gives: the exit code."""
    from barnabas.replication.rim.standby import Standby

    host, colon, port = leader.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise StartError(f"--standby-of {leader}: it must have the form HOST:PORT")
    host = host.strip("[]")
    _check_link(config, STANDBY_OF, host)
    try:
        Standby(config, (host, int(port))).run()
    except LogDirectoryError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable_data_directory(config, error) from error
    return 0


def _check_replication(options: argparse.Namespace, config: BrokerConfig) -> None:
    """Check the settings of replication. Raises: StartError if no standby could follow the broker,
    or if the settings would let any host follow it.
    """
    if config.barnabas_replication_port < 0:
        return
    _check_link(config, "barnabas.replication.host", config.barnabas_replication_host)
    if options.test_control is not None:
        raise StartError(
            "--test-control and barnabas.replication.port cannot be combined: a standby would "
            "keep data that a test discards"
        )


def _check_link(config: BrokerConfig, setting: str, host: str) -> None:
    """Check that the link between leader and standby is protected. Raises: StartError."""
    from barnabas.broker.rim.tls import TlsError
    from barnabas.replication.rim import link_security

    try:
        link_security.check_secret(config)
        link_security.check_address(config, setting, host)
        if setting != STANDBY_OF:
            link_security.leaders_tls(config)
        if setting == STANDBY_OF or config.barnabas_lease_url:
            link_security.standbys_tls(config)
    except (link_security.LinkSecurityError, TlsError) as error:
        raise StartError(str(error)) from error


def _disk(options: argparse.Namespace, config: BrokerConfig) -> Any:
    """The disk for the broker; None for the machine's own disk, without a wrapper."""
    if options.test_control is not None:
        from barnabas.test_control.forgetful_disk import ForgetfulDisk

        return ForgetfulDisk(config.data_dir)
    if config.barnabas_replication_port >= 0:
        from barnabas.replication.replicated_disk import ReplicatedDisk

        return ReplicatedDisk(OsDisk(), config.data_dir)
    return None


def _wait_until_leading(options: argparse.Namespace, config: BrokerConfig) -> PairMember | None:
    """Run as the other node's standby until this node has the lease. Gives: None if a signal came
    first.
    """
    from barnabas.replication.lease_record import LeaseRecordError
    from barnabas.replication.rim.pair_member import PairMember, PairSettingsError

    try:
        for sock in (*listen_for_each(config, options.port),
                     *listen_beside(options, config).values()):  # fmt: skip
            sock.close()  # opened only to report now if an address is in use
        member = PairMember(config, lambda some: listen_for_each(config, options.port, some))
        _load_what_serves(with_metrics=config.barnabas_metrics_port >= 0)
        return member if member.wait_until_leading() else None
    except (PairSettingsError, LeaseRecordError, LogDirectoryError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable_data_directory(config, error) from error


def _load_what_serves(*, with_metrics: bool) -> None:
    """Import the modules of a leader now, so that a take-over does not wait for them."""
    import barnabas.broker.coordinators
    import barnabas.broker.opening.start
    import barnabas.broker.transactions.transaction_recovery
    import barnabas.daemon.opening
    import barnabas.replication.replicated_disk
    import barnabas.replication.rim.lease_endpoint
    import barnabas.storage.opening.recovery

    if with_metrics:
        import barnabas.metrics.rim.endpoint  # noqa: F401


def _open_and_serve(
    options: argparse.Namespace,
    config: BrokerConfig,
    began: float,
    member: PairMember | None = None,
) -> int:
    """Open the data directory, and serve clients.

    Takes: member, this node as a member of a pair, which holds the lease; None if the broker uses
           no lease.
    """
    keeper = None if member is None else member.keeper
    signals = Signals()  # signals are handled before a client or script sees the port
    socks = listen_for_each(config, options.port) if member is None else member.reception.take()
    side_sockets = listen_beside(options, config)

    # Collect before the start makes its objects, while there are few objects to traverse. A process
    # that forks brokers has collected.
    if not options.has_imported_all:
        gc.collect()
    if member is None and os.path.exists(f"{config.data_dir}/{STANDBY_NOTE_NAME}"):
        # the files of a standby that was killed may not be flushed yet
        sync_file_system(config.data_dir)
    try:
        with _no_garbage_collection():
            broker = open_broker(
                config,
                SystemIds(),
                # Both times come from the server's clock, which may be ahead of the machine's
                # clock. Otherwise the loaded state would age by the difference at once.
                now_ms=steady_ms() + options.test_clock_ahead,
                wall_ms=wall_ms() + options.test_clock_ahead,
                sync=sync_together,
                disk=_disk(options, config),
                leader_epoch=0 if keeper is None else keeper.leader_epoch,
                clock_ns=busy_ns,
            )
    except LogDirectoryError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable_data_directory(config, error) from error
    exclude_loaded(is_frozen=options.has_imported_all)
    return _serve(Daemon(broker, socks, side_sockets, began, options, member, signals))


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector during a start, since it would double the duration of the start
    and free no memory.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _serve(daemon: Daemon) -> int:
    """Serve until a signal, the end of standard input or a failure. Gives the exit code."""
    try:
        with asyncio.Runner(loop_factory=daemon.new_loop) as runner:
            code = runner.run(daemon.run())
        if daemon.is_deposed:
            from barnabas.replication.rim.pair_member import begin_again

            begin_again()
        return code
    finally:
        # Ignore further signals: the interpreter removes its signal handlers before the process has
        # ended, so a signal would kill the process.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
