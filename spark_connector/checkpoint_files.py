"""Writes Spark's checkpoint files on a local disk without starting processes.

Spark writes two small files for each micro-batch, through Hadoop. The Spark from pip does not
contain Hadoop's native code. Hadoop therefore starts some 20 processes for the files (`chmod`,
`ls`, `readlink`). The Java class below is a manager of checkpoint files that starts no processes:
on a local disk the files get the permissions that the process's umask leaves, like files of other
programs. The class is compiled in the running JVM by Janino, the compiler that Spark itself uses
for its queries. As this takes a second or two of CPU, it is done once for each release of Spark and
each user.

    a temporary file has to be          what the class does on a local disk
    created, with its checksum          the same as Hadoop, but without setting permissions
    named, only if the name is free     makes a link, which the operating system refuses if the
                                        name exists: of two drivers at the same moment one fails
    named, even if a file has the name  renames the file atomically

On other file systems it does what its base class does. If a disk has no hard links, the base class
looks for the name and then renames the file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BASE_CLASS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
LOCAL_CLASS = "barnabas.LocalCheckpointFileManager"

SOURCE = f"""
package barnabas;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalCheckpointFileManager extends {BASE_CLASS} {{

    /** Hadoop's local files, but for permissions, for which it starts chmod. */
    public static class WithoutPermissions extends RawLocalFileSystem {{
        public void setPermission(Path path, FsPermission permission) {{}}
    }}

    private final LocalFileSystem files;  // null for another file system

    public LocalCheckpointFileManager(Path path, Configuration settings) throws IOException {{
        super(path, settings);
        String kind = this.fs().getClass().getName();
        boolean isLocal = kind.equals("org.apache.hadoop.fs.LocalFileSystem")
            || kind.equals("org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem");  // Spark with Hive
        this.files = isLocal && "file".equals(this.fs().getUri().getScheme())
            ? new LocalFileSystem(new WithoutPermissions()) : null;
        if (this.files != null) this.files.initialize(this.fs().getUri(), settings);
    }}

    public FSDataOutputStream createTempFile(Path path) throws IOException {{
        return this.files == null ? super.createTempFile(path) : this.files.create(path, true);
    }}

    public void renameTempFile(Path from, Path to, boolean overwrites) throws IOException {{
        if (this.files == null) {{
            super.renameTempFile(from, to, overwrites);
            return;
        }}
        File written = this.files.pathToFile(from);
        File named = this.files.pathToFile(to);
        File sums = this.files.pathToFile(this.files.getChecksumFile(to));
        if (overwrites) {{
            sums.delete();  // a file without a checksum is read without a check
            Files.move(written.toPath(), named.toPath(), StandardCopyOption.ATOMIC_MOVE);
        }} else {{
            try {{
                Files.createLink(named.toPath(), written.toPath());
            }} catch (Exception error) {{
                super.renameTempFile(from, to, false);  // it says why, if it fails, too
                return;
            }}
            written.delete();
        }}
        this.files.pathToFile(this.files.getChecksumFile(from)).renameTo(sums);
    }}
}}
"""


def use_quick_checkpoints(session: SparkSession) -> None:
    """Let a session write its checkpoints without processes, unless another manager is set.

    Takes:  session, which must have its own JVM on this machine, and not be one of Spark Connect.
    After:  its queries use LOCAL_CLASS, if the setting FILE_MANAGER was not set.

    If the class cannot be compiled or loaded, Spark's own default remains, which is slow and
    correct. Spark's FileSystemBasedCheckpointFileManager would be quicker, but cannot be used. On a
    local disk it does not replace files, which a repeated batch has to do with its state. (Spark
    contains Hive's class for local files, which renames only to free names.) Besides, two drivers
    may replace each other's log.
    """
    if session.conf.get(FILE_MANAGER, None) is None and _provide_local_class(session):
        session.conf.set(FILE_MANAGER, LOCAL_CLASS)


def _provide_local_class(session: SparkSession) -> bool:
    """Load the class into the JVM, and compile it first if necessary.

    The class is not available without Janino, with another kind of class loader, or if no private
    directory can be made. Only the speed depends on it.

    Gives:  whether the JVM has loaded the class.
    """
    from py4j.protocol import Py4JError

    jvm = session.sparkContext._jvm
    digest = hashlib.sha256(f"{session.version} {SOURCE}".encode()).hexdigest()[:12]
    home = Path(tempfile.gettempdir(), f"barnabas-classes-{os.getuid()}-{digest}")
    code = home.joinpath(*LOCAL_CLASS.split(".")).with_suffix(".class")
    try:
        if _is_loadable(jvm, LOCAL_CLASS):
            return True
        if not _is_loadable(jvm, BASE_CLASS):
            return False  # another release
        _make_private_directory(home)
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if not code.exists():
            _compile(jvm, loader, home)
        loader.addURL(jvm.java.io.File(str(home)).toURI().toURL())
        if _is_loadable(jvm, LOCAL_CLASS):
            return True
    except (Py4JError, OSError, TypeError, AttributeError):
        pass
    with suppress(OSError):
        code.unlink(missing_ok=True)  # the file may be damaged; the next session compiles it again
    return False


def _compile(jvm: Any, loader: Any, home: Path) -> None:
    """Compile the class by the compiler in the JVM (Janino), and write its files below the
    directory.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(SOURCE)
    # The inner class is written first. A session that starts at the same time looks only for the
    # outer class, and then needs both.
    for name, code in sorted(dict(compiler.getBytecodes()).items(), reverse=True):
        path = home.joinpath(*name.split(".")[:-1], f"{name.rpartition('.')[2]}.class")
        path.parent.mkdir(exist_ok=True)
        written = path.with_name(f"{path.name}.{os.getpid()}")
        written.write_bytes(code)
        written.replace(path)


def _make_private_directory(path: Path) -> None:
    """Make the directory with mode 0700. Raises: OSError if another user may have made the
    directory.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()  # a link may point to the directory of another user
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory")


def _is_loadable(jvm: Any, name: str) -> bool:
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(name))
