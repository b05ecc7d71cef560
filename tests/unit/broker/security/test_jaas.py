"""The JAAS texts in brokers' settings."""

from __future__ import annotations

import pytest

from barnabas.broker.security.jaas import JaasError, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_jaas_text_as_in_kafkas_documentation_is_parsed() -> None:
    text = f"""{MODULE} required
        username="admin"
        password="admin-secret"
        user_admin="admin-secret" user_alice = 'x'
        user_bob="with \\"quotes\\", = ; and \\\\";
    """.replace("'x'", '"x"')
    module = parse_jaas(text)
    assert module.class_name == MODULE
    assert module.options["username"] == "admin"
    assert module.passwords == {
        "admin": "admin-secret", "alice": "x", "bob": 'with "quotes", = ; and \\',
    }  # fmt: skip


def test_a_module_without_options() -> None:
    assert parse_jaas(f"{MODULE} required;").passwords == {}


@pytest.mark.parametrize(
    "text",
    ["", MODULE, f"{MODULE} required", f"{MODULE} needed;", f'{MODULE} required user_a="b"',
     f"{MODULE} required user_a;", f'{MODULE} required user_a="secret;', f"{MODULE} required =b;",
     f"{MODULE} required user_a==b;", f'{MODULE} required "secret" a;'],
)  # fmt: skip
def test_an_invalid_jaas_text_is_refused_without_showing_a_secret(text: str) -> None:
    with pytest.raises(JaasError) as error:
        parse_jaas(text)
    assert "secret" not in str(error.value)
