"""The pool of transactional ids for tasks: which task owns an id, and when an id is used again."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from barnabas.spark_connector.write.transactional_ids import KEPT_S, TransactionalIds


def test_ids_come_back_for_later_batches_of_the_same_run(tmp_path: Path) -> None:
    root = str(tmp_path / "ids")
    ids = TransactionalIds("driver", "run", root)
    name = ids.new()
    assert name.startswith("driver/run.") and name != ids.new()
    ids.put_back(name, 9)
    assert list(ids.take(9)) == []
    assert list(TransactionalIds("driver", "other", root).take(10)) == []
    assert list(TransactionalIds("driver-2", "run", root).take(10)) == []
    assert list(TransactionalIds("driver", "run", root).take(10)) == [name]
    assert list(ids.take(10)) == [], "it belongs to one"


def test_of_many_that_take_at_once_one_has_each(tmp_path: Path) -> None:
    """Four threads take ids from the pool at the same time. Each id is taken exactly once."""
    ids = TransactionalIds("driver", "run", str(tmp_path / "ids"))
    names = sorted(ids.new() for _ in range(100))
    for name in names:
        ids.put_back(name, 0)
    taken: list[str] = []
    threads = [threading.Thread(target=lambda: taken.extend(ids.take(1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == names


def test_without_a_directory_each_attempt_has_an_id_of_its_own(tmp_path: Path) -> None:
    """The directory cannot be created, since its path is a file. Another user could have created
    this file.
    """
    (tmp_path / "ids").write_text("")
    ids = TransactionalIds("driver", "run", str(tmp_path / "ids"))
    ids.put_back(ids.new(), 0)
    assert list(ids.take(1)) == []


def test_the_directory_is_private(tmp_path: Path) -> None:
    root = tmp_path / "ids"
    TransactionalIds("driver", "run", str(root)).put_back("driver/run.a", 0)
    (pool,) = root.iterdir()
    assert root.stat().st_mode & 0o777 == pool.stat().st_mode & 0o777 == 0o700


def test_what_brokers_have_forgotten_is_deleted(tmp_path: Path) -> None:
    root = str(tmp_path / "ids")
    TransactionalIds("driver", "old", root).put_back("driver/old.a", 0)
    (old,) = (tmp_path / "ids").iterdir()
    past = old.stat().st_mtime - KEPT_S - 1
    os.utime(old, (past, past))
    TransactionalIds("driver", "new", root).put_back("driver/new.a", 0)
    assert not old.exists()
    assert list(TransactionalIds("driver", "new", root).take(1)) == ["driver/new.a"]
