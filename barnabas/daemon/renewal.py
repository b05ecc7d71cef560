"""Whether a process in which a daemon has ended may run another one.

A new process costs a test most of its time: after a fork each page is copied at the first write to
it, and the processor's caches are cold. The core is a value, and modules hold nothing but caches of
pure functions, so a daemon that has ended leaves something only in what the system and the standard
library keep for a process. `ProcessState` has all of it that a daemon, its clients or somebody from
outside can change. What a daemon changes in each start is set back; if anything else differs from
what was there before the first daemon, the process is not used again, and a fork takes its place.

    set back     signal handlers, handlers and levels of loggers, standard descriptors, the limit of
                 descriptors, thresholds of the garbage collector, the switch interval of threads,
                 the current directory
    compared     descriptors, threads, child processes, loggers, limits, priority, processors,
                 umask, signal mask, timers, locale, time zone, warning filters, hooks of the
                 interpreter, memory
"""

from __future__ import annotations

import gc
import locale
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from typing import Any, NamedTuple

from barnabas.daemon.garbage import resident_bytes

MOST_GROWTH_BYTES = 48 << 20
_THREADS_END_WITHIN_S = 1.0
_LIMITS = sorted(
    {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    - {resource.RLIMIT_NOFILE}
)


class _Logger(NamedTuple):
    """What can be set of a logger."""

    level: int
    handlers: tuple[logging.Handler, ...]
    filters: tuple[Any, ...]
    disabled: bool
    propagate: bool


class ProcessState:
    """What belongs to a process and not to a broker, as it is now: before the first daemon."""

    def __init__(self) -> None:
        self._signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._loggers = _loggers()
        self._open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._switch_interval = sys.getswitchinterval()
        self._thresholds = gc.get_threshold()
        self._rest = _rest()
        self._resident = 0

    def restore(self) -> bool:
        """Set back what a daemon changes. Gives: whether all is as it was before the first one."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _stand_in_for_standard_descriptors()
        os.chdir("/")
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(_THREADS_END_WITHIN_S)
        for number, handler in self._signals.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        self._restore_loggers()
        resource.setrlimit(resource.RLIMIT_NOFILE, self._open_files)
        sys.setswitchinterval(self._switch_interval)
        gc.set_threshold(*self._thresholds)
        gc.collect()  # only what was made since the fork server has frozen its objects
        resident = resident_bytes()
        self._resident = self._resident or resident
        return _rest() == self._rest and resident - self._resident <= MOST_GROWTH_BYTES

    def _restore_loggers(self) -> None:
        """Set back levels, handlers and filters."""
        logging.disable(logging.NOTSET)
        for logger in _all_loggers():
            was = self._loggers.get(logger.name)
            if was is None or was == _of(logger):
                continue
            logger.setLevel(was.level)
            logger.handlers[:] = was.handlers
            logger.filters[:] = was.filters
            logger.disabled, logger.propagate = was.disabled, was.propagate


def _stand_in_for_standard_descriptors() -> None:
    """Let the standard descriptors be /dev/null, so that their pipes are at an end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _all_loggers() -> list[logging.Logger]:
    made = logging.Logger.manager.loggerDict.values()
    return [logging.root, *(each for each in made if isinstance(each, logging.Logger))]


def _of(logger: logging.Logger) -> _Logger:
    return _Logger(
        logger.level,
        tuple(logger.handlers),
        tuple(logger.filters),
        logger.disabled,
        logger.propagate,
    )


def _loggers() -> dict[str, _Logger]:
    return {logger.name: _of(logger) for logger in _all_loggers()}


def _rest() -> tuple[object, ...]:
    """What no daemon changes in a process that it leaves as it was."""
    umask = os.umask(0)
    os.umask(umask)
    return (
        _descriptors(),
        [logger.name for logger in _all_loggers()],
        [thread.name for thread in threading.enumerate()],
        _has_children(),
        [resource.getrlimit(limit) for limit in _LIMITS],
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        umask,
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        signal.getitimer(signal.ITIMER_REAL),
        locale.setlocale(locale.LC_ALL),
        time.tzname,
        list(warnings.filters),
        (
            sys.excepthook,
            sys.unraisablehook,
            threading.excepthook,
            sys.gettrace(),
            sys.getprofile(),
        ),
        (gc.isenabled(), gc.get_debug(), tuple(gc.callbacks)),
    )


def _descriptors() -> frozenset[str]:
    """The open descriptors, with the one by which they are read."""
    return frozenset(os.listdir("/dev/fd"))


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
