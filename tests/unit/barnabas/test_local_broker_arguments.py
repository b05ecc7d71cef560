"""Wrong arguments of LocalBroker are refused at once, with an example of a right one."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas import LocalBroker


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"users": ["ada"]}, 'as {"ada": "a password"}'),
        ({"users": "ada"}, 'as {"ada": "a password"}'),
        ({"users": {"ada": None}}, "'ada': a name and its password have to be strings"),
        ({"users": {"ada": 5}}, "'ada': a name and its password have to be strings"),
        ({"settings": ["a=b"]}, "give a dict of values by name"),
        ({"settings": "a=b"}, "give a dict of values by name"),
        ({"topics": "orders"}, "as ['orders']"),
        ({"topics": 5}, "give a list of names"),
        ({"topics": {"orders": "3"}}, "'orders': '3' is no number of partitions"),
        ({"port": "9092"}, "port='9092': it has to be a whole number"),
        ({"brokers": "3"}, "brokers='3': it has to be a whole number"),
    ],
)
def test_a_wrong_argument_is_explained(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as refused:
        LocalBroker(**arguments)
    assert words in str(refused.value)


def test_a_broker_without_test_control_says_how_to_get_it() -> None:
    with pytest.raises(RuntimeError) as refused:
        _ = LocalBroker().control
    text = str(refused.value)
    assert "LocalBroker(control=True)" in text
    assert "@pytest.mark.barnabas(control=True)" in text
    assert "barnabas_options" in text
