"""Resolves paths that are given to Spark by the rules of Hadoop's file systems, for readers that
are not Java. This module opens only the files of Hadoop's settings.

    /user/ck             on the default file system, fs.defaultFS: hdfs://name/user/ck, or local
    ck                   the same, below the working directory: that of the driver's process if the
                         default file system is local, otherwise /user/<name>
    hdfs:/ck             on the host of fs.defaultFS, if the scheme is the same
    viewfs://c/logs/ck   what is mounted there: fs.viewfs.mounttable.c.link./logs, and so on
    file:/tmp/ck         local

Settings come from `core-site.xml` on the driver (HADOOP_CONF_DIR, YARN_CONF_DIR, SPARK_CONF_DIR, or
$SPARK_HOME/conf) and from Spark's own `spark.hadoop.*`, which have priority. A task sees the latter
among the properties of its job. Source: Hadoop's FileSystem, Path and ViewFs documentation; Spark's
ResolveWriteToStream, which qualifies the location of a checkpoint.
"""

from __future__ import annotations

import getpass
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

DEFAULT_FS = "fs.defaultFS"
OLD_DEFAULT_FS = "fs.default.name"  # the name of the setting before Hadoop 2
MOUNT_TABLE = "fs.viewfs.mounttable."
SPARK_HADOOP = "spark.hadoop."
MOST_MOUNTS = 10  # the maximum number of mount tables to follow; a longer sequence is a cycle


class PathError(ValueError):
    """A path cannot be resolved by the settings. The message says what to give in its place."""


@dataclass(frozen=True)
class PathRules:
    """The values that determine the meaning of a path.

    settings: Hadoop's settings, by name. working_directory: that of the driver's process. user: the
    user whose home is the working directory on file systems that are not local.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    user: str = ""

    def resolve(self, location: str) -> str:
        """Resolve the location to an absolute local path, or to a URI of a file system that stores
        files.

        Raises: PathError.
        """
        given = location
        for _ in range(MOST_MOUNTS):
            scheme, authority, path = self._qualify(location)
            if scheme == "file":
                return path
            if scheme != "viewfs":
                # A complete URI is returned unchanged, since it may end with settings for Arrow,
                # and may contain escapes.
                is_whole = location == given and _parts(given)[1] != ""
                return given if is_whole else f"{scheme}://{authority}{quote(path)}"
            location = self._mounted(authority, path)
        raise PathError(f"the mount tables of viewfs form a cycle: {given!r}")

    def _qualify(self, location: str) -> tuple[str, str, str]:
        """Return the scheme, authority and absolute path of a location."""
        scheme, authority, path = _parts(location)
        default_scheme, default_authority, _ = _parts(self._default_fs)
        if not scheme:
            scheme, authority = default_scheme, default_authority
            path = posixpath.join(self._home(scheme, authority), path)
        elif scheme == default_scheme and not authority:
            authority = default_authority
        return scheme, authority, posixpath.normpath(path)

    @property
    def _default_fs(self) -> str:
        return self.settings.get(DEFAULT_FS) or self.settings.get(OLD_DEFAULT_FS) or "file:///"

    def _home(self, scheme: str, authority: str) -> str:
        """Return the initial working directory of a process on a file system."""
        if scheme == "file":
            return self.working_directory
        parent = "/user"
        if scheme == "viewfs":
            parent = self.settings.get(f"{MOUNT_TABLE}{authority or 'default'}.homedir", parent)
        return posixpath.join(parent, self.user)

    def _mounted(self, authority: str, path: str) -> str:
        """Follow a mount of viewfs. Gives: the location on the mounted file system."""
        prefix = f"{MOUNT_TABLE}{authority or 'default'}."
        links = {
            posixpath.normpath(name.removeprefix(f"{prefix}link.")): target
            for name, target in self.settings.items()
            if name.startswith(f"{prefix}link.")
        }
        matching = [source for source in links if _is_below(path, source)]
        if matching:
            source = max(matching, key=len)
            return _join(links[source], path[len(source.rstrip("/")) :])
        for rest in ("linkMergeSlash", "linkFallback"):
            if f"{prefix}{rest}" in self.settings:
                return _join(self.settings[f"{prefix}{rest}"], path)
        raise PathError(
            f"viewfs://{authority}{path} is below no link of viewfs that the connector sees "
            f"({prefix}link.*): give checkpointLocation as a URI of the file system itself, such "
            "as hdfs://host/path, or the mount table as spark.hadoop.* settings"
        )


def path_rules(
    site: Mapping[str, str], job_properties: Mapping[str, str], working_directory: str
) -> PathRules:
    """Return the rules for a task or for its driver.

    Takes:  site, the settings of the driver's core-site.xml; job_properties, those of TaskContext,
            which include Spark's settings.
    """
    of_spark = {
        name.removeprefix(SPARK_HADOOP): value
        for name, value in job_properties.items()
        if name.startswith(SPARK_HADOOP)
    }
    return PathRules({**site, **of_spark}, working_directory, user_name())


def user_name() -> str:
    """Return the user's name as Hadoop determines it without Kerberos."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return ""


def site_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Read Hadoop's settings on this machine, from the first core-site.xml that Spark would find.

    Only settings that concern paths are returned, so no secret is included.
    """
    home = environment.get("SPARK_HOME")
    directories = [
        environment.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
    ]
    for directory in (*directories, os.path.join(home, "conf") if home else None):
        if directory and (file := Path(directory) / "core-site.xml").is_file():
            return _settings_in(file)
    return {}


def _settings_in(file: Path) -> dict[str, str]:
    """Read those settings in a file of Hadoop that determine the meaning of paths. Raises:
    PathError.
    """
    try:
        root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise PathError(f"Hadoop's settings in {file} cannot be read: {error}") from error
    settings: dict[str, str] = {}
    for each in root.iter("property"):
        name, value = (each.findtext("name") or "").strip(), (each.findtext("value") or "").strip()
        if name in (DEFAULT_FS, OLD_DEFAULT_FS) or name.startswith(MOUNT_TABLE):
            settings[name] = value
    return settings


def _parts(location: str) -> tuple[str, str, str]:
    """Split a location into scheme, authority and path, as Hadoop's Path does.

    A ? or # is part of the path. A colon after a slash belongs to a name.
    """
    head, colon, rest = location.partition(":")
    scheme = head if colon and "/" not in head else ""
    rest = rest if scheme else "/" + location.lstrip("/") if location[:1] == "/" else location
    if not rest.startswith("//"):
        return scheme, "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme, authority, slash + path or "/"


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _join(target: str, rest: str) -> str:
    return target.rstrip("/") + "/" + rest.lstrip("/") if rest.strip("/") else target
