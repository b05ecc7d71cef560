"""Runs one broker in an event loop: makes its server, announces its addresses, and closes it at the
end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import select
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnabas.broker.core import Broker
from barnabas.broker.rim.clocks import MACHINE_CLOCK
from barnabas.broker.rim.poller import PolledLoop, Poller
from barnabas.broker.rim.server import Server
from barnabas.daemon.announcing import announce, shown
from barnabas.daemon.garbage import collect_rarely, exclude_loaded
from barnabas.daemon.listening import REPLICATION_PORT, Sockets
from barnabas.daemon.signals import Signals
from barnabas.installing import install_command
from barnabas.process.log_output import LogOutput
from barnabas.storage.disk import is_out_of_space, may_have_lost_pages

if TYPE_CHECKING:
    from barnabas.console.rim.endpoint import Console
    from barnabas.metrics.rim.measured import Measuring
    from barnabas.replication.rim.leader_endpoint import Leader
    from barnabas.replication.rim.lease_endpoint import LeasedLeader
    from barnabas.replication.rim.pair_member import PairMember
    from barnabas.test_control.rim.control import Control

logger = logging.getLogger("barnabas")


class Daemon:
    """One broker, from the moment it listens until its logs are closed.

    Takes: began, the steady time at which the start began, for the announcement; member, this node
           as a member of a pair, which holds the lease.

    is_deposed: whether another node has become the leader.
    """

    def __init__(
        self,
        broker: Broker,
        socks: Sequence[socket.socket],
        side_sockets: Sockets,
        began: float,
        options: argparse.Namespace,
        member: PairMember | None,
        signals: Signals,
    ) -> None:
        self._signals, self._member = signals, member
        self.is_deposed = False
        self._broker, self._socks, self._side_sockets = broker, socks, side_sockets
        self._began, self._options = began, options
        self._measuring = _measuring() if "--metrics-port" in side_sockets else None
        # with metrics, the loop's selector is measured
        self._poller = Poller() if self._measuring is None else self._measuring.selector
        self._leader: Leader | None = None
        # the same object as _leader, if this node leads by a lease
        self._leased_leader: LeasedLeader | None = None
        self._input_has_ended = self._is_stopping = False

    async def run(self) -> int:
        """Serve clients until the end. Gives: the exit code."""
        options, loop = self._options, asyncio.get_running_loop()
        server = self._server(loop)
        console = _console(server, self._side_sockets)
        # with the modules of the console and of metrics
        exclude_loaded(is_frozen=options.has_imported_all)
        collect_rarely(loop)
        asked_to_end = asyncio.Event()

        def end_with_input() -> None:
            self._input_has_ended = True
            asked_to_end.set()

        log_output = _log_in_a_thread()
        self._signals.call(
            lambda: loop.call_soon_threadsafe(asked_to_end.set),
            lambda: loop.call_soon_threadsafe(self._reload, server, log_output),
        )
        if options.stop_at_end_of_input or options.remove_data_at_end_of_input:
            _on_end_of_input(
                lambda: loop.call_soon_threadsafe(end_with_input),
                or_of_parent=options.stop_with_parent,
                or_at_input=options.ends_at_input,
            )
        console_url = None if console is None else console.url
        announce(server, self._began, console_url, quiet=options.quiet)
        if options.ready_file:
            _write_ready_file(options.ready_file, server.addresses)
        if self._member is not None and self._leased_leader is not None:
            self._leased_leader.on_deposed(asked_to_end.set)
            self._member.reception.hand_over(self._leased_leader.adopt)
        await _until_either(asked_to_end, server.failure)
        self._is_stopping = not server.failed
        if console is not None:
            console.close()
        if self._leader is None:
            server.close()
        else:
            await self._leader.end()
            self.is_deposed = self._leader.is_deposed
        if server.failed:
            self._log_failure(server.failure.result())
        self._clear_away()
        log_output.finish()
        return 1 if server.failed else 0

    def _reload(self, server: Server, log_output: LogOutput) -> None:
        """Read the certificates and open the log files again, in the loop's thread."""
        logger.info(
            "SIGHUP: the certificates are read and the log files are opened again; settings of the "
            "file are read only at a start"
        )
        server.reload()
        if self._leader is not None:
            self._leader.endpoint.reload()
        log_output.reopen()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop for `run`."""
        return PolledLoop(self._poller)

    def _server(self, loop: asyncio.AbstractEventLoop) -> Server:
        """Make the server with its gate and its observer, and the HTTP servers alongside it."""
        broker, sides, measuring = self._broker, self._side_sockets, self._measuring
        control = None if "--test-control" not in sides else self._control()
        if REPLICATION_PORT in sides:
            self._leader = self._new_leader(loop)
        server = Server(
            broker,
            self._socks,
            loop,
            clock=MACHINE_CLOCK if control is None else control.server_clock(),
            gate=self._leader if control is None else control,
            observer=measuring,
            sockets=self._poller,
        )
        if "--metrics-port" in sides or "--console-port" in sides:
            broker.coordinators.get()  # metrics and console read their state
        # the worker, not the event loop, loads the handlers of a first request
        broker.families.are_loaded_elsewhere = not self._options.has_imported_all
        if control is not None:
            _serve_control(control, sides["--test-control"])
        if measuring is not None:
            from barnabas.metrics.rim.endpoint import MetricsEndpoint

            state = None if self._leader is None else self._leader.replication_state
            endpoint = MetricsEndpoint(server, measuring, sides["--metrics-port"], state)
            logger.info("metrics on %s", endpoint.url)
        return server

    def _new_leader(self, loop: asyncio.AbstractEventLoop) -> Leader:
        """Make the leader's side of replication, to which standbys connect."""
        sock, broker = self._side_sockets[REPLICATION_PORT], self._broker
        if self._member is not None:
            from barnabas.replication.rim.lease_endpoint import LeasedLeader

            self._leased_leader = LeasedLeader(
                broker.config, broker.logs, broker.cluster, sock, loop, self._member.keeper
            )
            return self._leased_leader
        from barnabas.replication.rim.leader_endpoint import Leader

        return Leader(broker.config, broker.logs.disk, sock, loop)

    def _control(self) -> Control:
        """The test control: commands that cause faults and move the clock."""
        from barnabas.test_control.rim.clock import ControlledClock
        from barnabas.test_control.rim.control import Control

        clock = ControlledClock()
        clock.advance(self._options.test_clock_ahead)
        return Control(clock)

    def _log_failure(self, error: Exception) -> None:
        """Log why the daemon ends. After an error that may have lost pages of a file, make sure
        that the next start does not treat this stop as clean.
        """
        logger.critical(
            "stopping: %s",
            _explain(error, self._broker.config.data_dir, is_stopping=self._is_stopping),
            exc_info=None if isinstance(error, OSError) else error,
        )
        if isinstance(error, OSError) and may_have_lost_pages(error):
            self._broker.logs.note_failure()

    def _clear_away(self) -> None:
        """Remove the ready file; also the data directory, if the option asks for that at the end of
        input.
        """
        if self._options.ready_file:
            with contextlib.suppress(OSError):
                os.unlink(self._options.ready_file)
        if self._input_has_ended and self._options.remove_data_at_end_of_input:
            shutil.rmtree(self._broker.config.data_dir, ignore_errors=True)


async def _until_either(asked_to_end: asyncio.Event, failure: asyncio.Future[Exception]) -> None:
    """Wait until the broker is asked to end, or has failed."""
    end = asyncio.ensure_future(asked_to_end.wait())
    await asyncio.wait((end, failure), return_when=asyncio.FIRST_COMPLETED)
    end.cancel()  # the failure is not cancelled: `close` reads it


def _measuring() -> Measuring:
    """The observer that measures a server, from the start of its loop on."""
    from barnabas.metrics.rim.measured import Instruments, Measuring, TimedSelector

    instruments = Instruments()
    return Measuring(instruments, TimedSelector(instruments.stalls))


def _serve_control(control: Control, sock: socket.socket) -> None:
    """Serve the commands of the test control."""
    from barnabas.test_control.rim.endpoint import ControlEndpoint

    logger.warning(
        "TEST CONTROL on %s: every process that reaches it can drop answers and move the clock. "
        "It is only for tests of clients",
        ControlEndpoint(control, sock).url,
    )


def _warn_of_missing_libraries() -> None:
    """Log which packages are missing if the console is to decode records by their schemas. The
    broker itself imports none of them.
    """
    if find_spec("fastavro") is None or find_spec("jsonschema") is None:
        logger.warning(
            "--console-registry: the console decodes no records until this is installed: %s",
            install_command("schemas"),
        )


def _console(server: Server, side_sockets: Sockets) -> Console | None:
    """The console; None if it was not requested."""
    sock = side_sockets.get("--console-port")
    if sock is None:
        return None
    from barnabas.console.rim.endpoint import Console
    from barnabas.process.http_server import LOOPBACK

    console, host = Console(server, sock), sock.getsockname()[0]
    if server.state.config.barnabas_console_registry:
        _warn_of_missing_libraries()
    if host not in LOOPBACK:
        if console.needs_login:
            what = "without TLS: it sends its users' passwords unencrypted"
        elif server.state.config.barnabas_console_writes:
            what = "everyone who reaches it can read and write all records"
        else:
            what = "everyone who reaches it can read all records"
        logger.warning("the console listens on %s: %s", host, what)
    return console


def _on_end_of_input(do: Callable[[], object], *, or_of_parent: bool, or_at_input: bool) -> None:
    """Call the function when standard input ends or, if `or_of_parent`, the parent process, where
    the system can report that. Input before the end is ignored, unless `or_at_input`: then any
    input is the end, and stays unread.
    """
    parent = -1
    if or_of_parent:
        with contextlib.suppress(AttributeError, OSError):
            parent = os.pidfd_open(os.getppid())

    def wait() -> None:
        poll = select.poll()
        for descriptor in (0, parent) if parent >= 0 else (0,):
            poll.register(descriptor, select.POLLIN)
        with contextlib.suppress(OSError):
            while all(at == 0 and not or_at_input and os.read(0, 4096) for at, _ in poll.poll()):
                pass
        if parent >= 0:
            os.close(parent)
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            do()

    threading.Thread(target=wait, name="end-of-input", daemon=True).start()


def _write_ready_file(path: str, addresses: Sequence[tuple[str, int]]) -> None:
    """Write the addresses of the brokers to a file, as `HOST:PORT` separated by commas. The file is
    renamed into place, so that no reader sees a part of it.
    """
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(f"{shown(addresses)}\n")
    os.replace(temporary, path)


def _log_in_a_thread() -> LogOutput:
    """Replace the log handler that writes in the calling thread by one that writes in a separate
    thread.
    """
    output = LogOutput(2)
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler and handler.stream is sys.stderr:
            output.setFormatter(handler.formatter)
            root.removeHandler(handler)
    root.addHandler(output)
    return output


def _explain(error: Exception, data_dir: str, *, is_stopping: bool) -> str:
    """The log line for an error that ends the daemon.

    Takes: is_stopping, whether the error was raised by a write of a clean stop.
    """
    if isinstance(error, OSError) and is_stopping and is_out_of_space(error):
        return (
            f"the data directory {data_dir} has no space for the files of a clean stop "
            f"({error.strerror}): the next start reads the logs as after a kill, and no "
            "acknowledged data are lost"
        )
    if isinstance(error, OSError):
        return (
            f"the data directory {data_dir} failed: "
            f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}; the "
            "broker acknowledged nothing after that. Start again when the disk is repaired"
        )
    return (
        f"an invariant does not hold: {error!r}. Acknowledged data are in the logs; please "
        "report this"
    )
