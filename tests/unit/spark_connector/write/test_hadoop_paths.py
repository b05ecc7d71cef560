"""The path of a checkpoint location, determined by Hadoop's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark_connector.write.hadoop_paths import (
    PathError,
    PathRules,
    path_rules,
    site_settings,
)

HDFS = {"fs.defaultFS": "hdfs://nn:8020"}
VIEW = {
    "fs.defaultFS": "viewfs://c/",
    "fs.viewfs.mounttable.c.link./data": "hdfs://nn/warehouse",
    "fs.viewfs.mounttable.c.link./data/fast": "s3a://bucket/fast",
    "fs.viewfs.mounttable.c.link./here": "file:///srv/here",
    "fs.viewfs.mounttable.c.homedir": "/data/home",
    "fs.viewfs.mounttable.d.linkFallback": "hdfs://other/",
    "fs.viewfs.mounttable.default.linkMergeSlash": "hdfs://merged",
}


@pytest.mark.parametrize(
    ("location", "settings", "leads_to"),
    [
        ("/user/ck", {}, "/user/ck"),
        ("ck", {}, "/driver/ck"),
        ("a b/c%20d", {}, "/driver/a b/c%20d"),
        ("file:/tmp/a b", {}, "/tmp/a b"),
        ("file:///tmp/x/", HDFS, "/tmp/x"),
        ("//double/ck", {}, "/double/ck"),
        ("/user/ck", HDFS, "hdfs://nn:8020/user/ck"),
        ("/user/a b", HDFS, "hdfs://nn:8020/user/a%20b"),
        ("ck", HDFS, "hdfs://nn:8020/user/ann/ck"),
        ("hdfs:/ck", HDFS, "hdfs://nn:8020/ck"),
        ("hdfs:///ck", HDFS, "hdfs://nn:8020/ck"),
        ("hdfs://two/ck", HDFS, "hdfs://two/ck"),
        ("s3a://bucket/ck?region=x", HDFS, "s3a://bucket/ck?region=x"),
        ("/user/ck", {"fs.default.name": "hdfs://old"}, "hdfs://old/user/ck"),
        ("ck", {"fs.defaultFS": "s3a://bucket"}, "s3a://bucket/user/ann/ck"),
        ("/data/ck", VIEW, "hdfs://nn/warehouse/ck"),
        ("/data", VIEW, "hdfs://nn/warehouse"),
        ("/data/fast/ck", VIEW, "s3a://bucket/fast/ck"),
        ("/data/faster/ck", VIEW, "hdfs://nn/warehouse/faster/ck"),
        ("/here/a b", VIEW, "/srv/here/a b"),
        ("ck", VIEW, "hdfs://nn/warehouse/home/ann/ck"),
        ("viewfs:/here/ck", VIEW, "/srv/here/ck"),
        ("viewfs://c/here/ck", HDFS | VIEW, "/srv/here/ck"),
        ("viewfs://d/any/ck", VIEW, "hdfs://other/any/ck"),
        ("viewfs:///any/ck", {**VIEW, **HDFS}, "hdfs://merged/any/ck"),
    ],
)
def test_a_location_resolves_to_hadoops_path(
    location: str, settings: dict[str, str], leads_to: str
) -> None:
    assert PathRules(settings, "/driver", "ann").resolve(location) == leads_to


def test_the_error_for_an_unmounted_path_says_what_to_use() -> None:
    with pytest.raises(PathError, match=r"viewfs://c/logs/ck is below no link.*hdfs://host/path"):
        PathRules(VIEW, "/driver", "ann").resolve("/logs/ck")
    cycle = {
        "fs.viewfs.mounttable.a.link./x": "viewfs://b/x",
        "fs.viewfs.mounttable.b.link./x": "viewfs://a/x",
    }
    with pytest.raises(PathError, match="form a cycle"):
        PathRules(cycle).resolve("viewfs://a/x")


def test_settings_of_spark_override_those_of_the_site_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration>"
        "<property><name>fs.defaultFS</name><value> hdfs://site </value></property>"
        "<property><name>fs.s3a.secret.key</name><value>secret</value></property>"
        "</configuration>"
    )
    site = site_settings({"HADOOP_CONF_DIR": str(tmp_path)})
    assert site == {"fs.defaultFS": "hdfs://site"}, "other settings, such as secrets, are not kept"
    monkeypatch.setenv("HADOOP_USER_NAME", "bea")
    assert path_rules(site, {}, "/d").resolve("ck") == "hdfs://site/user/bea/ck"
    job = {"spark.hadoop.fs.defaultFS": "file:///", "spark.app.name": "x"}
    assert path_rules(site, job, "/d").resolve("ck") == "/d/ck"


def test_the_site_file_of_the_first_directory_that_has_one_is_read(tmp_path: Path) -> None:
    for name in ("yarn", "home/conf"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "core-site.xml").write_text(
            "<configuration><property><name>fs.defaultFS</name>"
            f"<value>hdfs://{name}</value></property></configuration>"
        )
    environment = {"HADOOP_CONF_DIR": str(tmp_path / "none"), "SPARK_HOME": str(tmp_path / "home")}
    assert site_settings(environment) == {"fs.defaultFS": "hdfs://home/conf"}
    environment["YARN_CONF_DIR"] = str(tmp_path / "yarn")
    assert site_settings(environment) == {"fs.defaultFS": "hdfs://yarn"}
    assert site_settings({}) == {}
    (tmp_path / "yarn" / "core-site.xml").write_text("<configuration>")
    with pytest.raises(PathError, match=r"core-site\.xml cannot be read"):
        site_settings(environment)
