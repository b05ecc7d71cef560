"""Secrets in log lines of other programs, in every form that a line may have them in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cli.secret_texts import REMOVED, Cleaner

# What is said before and after a secret without spaces.
FORMS = {
    "a setting": "sasl.password={}",
    "a setting with spaces": "sasl.password = {}",
    "a setting in a line": "2026-11-29 10:00:00 INFO x: user=a password={} host=b",
    "after a comma": "connect user=alice,password={}",
    "pwd": "jdbc:x;user=a;pwd={}",
    "a name that ends with pwd": "db_pwd: {}",
    "pass": "SMTP pass={}",
    "a passphrase": "loaded the key, passphrase={}",
    "apiKey": 'POST {{"apiKey": "{}", "x": 1}}',
    "api_key": "api_key={}",
    "a header": "x-api-key: {}",
    "a header in a trace": "> X-Auth-Key: {}",
    "a cookie": "Set-Cookie: session={}; Path=/",
    "Authorization": "Authorization: Custom {}",
    "Basic": "sent Basic {}",
    "an option": "kcat -b h:1 --sasl-password {} -t orders",
    "an option with =": "run --auth-token={} now",
    "an option in quotes": "run --client-secret '{}' now",
    "curl": "curl -u alice:{} http://host",
    "a URL": "GET http://admin:{}@host/x",
    "a URL without a user": "redis://:{}@host:6379/0",
    "a URL with an @": "amqp://u:p@{}@host/x",
    "a URL with a slash": "mongodb://u:p/{}@host/x",
    "JSON": '{{"client_secret": "{}", "x": 1}}',
    "JSON in JSON": 'body "{{\\"password\\":\\"{}\\"}}"',
    "a list": '{{"passwords": ["x", "{}"]}}',
    "a string that is cut": '{{"password": "{}',
    "Ruby": "{{:password=>'{}'}}",
    "YAML": "  password: {}",
    "the next line": "password:\n    {}",
    "XML": "<db><password>{}</password></db>",
    "an attribute": '<property name="password" value="{}"/>',
    "a pair": '{{"name": "sasl.password", "value": "{}"}}',
    "a map": "config {{user=a, sasl.password={}, x=1}}",
    "words": 'the password "{}" is wrong',
    "a variable": "PGPASSWORD={} psql",
    "a signature": "GET https://h/x?sig={}",
    "SCRAM": "SCRAM-SHA-256=[iterations=4096,password={}]",
    "a stored key": "salt=x stored_key={}",
    "SAS": "Endpoint=sb://x/;SharedAccessKey={}",
    "a credential": "aws.secretKey={}",
}
SECRETS = st.text(
    st.characters(
        codec="ascii", exclude_categories=["C", "Z"], exclude_characters="\"'\\<>[]{}/@&"
    ),
    min_size=8,
    max_size=24,
).map(lambda text: f"q{text}7Q")


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(secret=SECRETS)
def test_a_secret_is_removed_in_each_form(form: str, secret: str) -> None:
    """A secret may have commas, semicolons, colons and equals signs."""
    text = Cleaner(()).text(f"the line before\n{FORMS[form].format(secret)}\nthe line after")
    assert REMOVED in text
    assert secret not in text and not _tails(secret) & set(text.split())
    assert text.startswith("the line before\n")


def _tails(secret: str) -> set[str]:
    """What would be left if a secret were taken to end at a sign."""
    return {secret[at + 1 :] for at, one in enumerate(secret[:-4]) if not one.isalnum()}


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-29 10:00:00,123 INFO barnabas.storage: orders-0: the segment at 0 is deleted",
        "the password is wrong",
        "wrong password for user alice",
        "72 tests passed=72 failed=0",
        "GET http://127.0.0.1:9404/metrics 200",
        "/var/lib/barnabas/data/orders-0/00000000000000000000.log has 4096 bytes",
        "cluster id Some4711ClusterId22Char and topic id JYn2bGX7SkGnM1m6bHyc4A",
        "key=order-7 value=42",
    ],
)
def test_a_line_without_a_secret_is_unchanged(line: str) -> None:
    assert Cleaner(()).text(line) == line


# --- keys -----------------------------------------------------------------------------------------

BODY = [("Ab1+" * 16), ("Xy9/" * 16), ("MIIE" * 16)]
LAST = "Zz8="
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
KEY = [BEGIN, *BODY, LAST, END]


@pytest.mark.parametrize("begin", range(len(KEY)))
@pytest.mark.parametrize("end", range(1, len(KEY) + 1))
def test_a_key_that_is_cut_anywhere_is_removed(begin: int, end: int) -> None:
    part = KEY[begin:end]
    if not part or part == [LAST]:
        return
    text = Cleaner(()).text("\n".join(["before it", *part, "after it"]))
    assert not any(line in text for line in [*BODY, BEGIN, END])
    if BEGIN in part or END in part or len(part) > 2:
        assert LAST not in text or part[-1:] == [LAST]
    assert text.splitlines()[0] == "before it" and text.splitlines()[-1] == "after it"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"2026-11-29 INFO x: {line}" for line in KEY),
        "key: " + "\\n".join(KEY),
        '{"pem": "' + "\\n".join(KEY) + '"}',
        "\n".join([BEGIN, "Proc-Type: 4,ENCRYPTED", "", *BODY, "another line", *BODY, END]),
        "\n".join(line.replace("RSA", "OPENSSH") for line in KEY),
    ],
)
def test_a_key_is_removed_with_what_a_log_puts_around_its_lines(text: str) -> None:
    cleaned = Cleaner(()).text(f"before it\n{text}\nafter it")
    assert not any(line in cleaned for line in [*BODY, LAST])
    assert cleaned.startswith("before it\n") and cleaned.endswith("\nafter it")


def test_tokens_are_removed_by_their_form() -> None:
    for token in (
        "ghp_" + "a1B2" * 9,
        "AKIA" + "Q7" * 8,
        "xoxb-123456789012-abcdef",
        "eyJh.eyJz.c2",
    ):
        assert token not in Cleaner(()).text(f"refused {token} of a")


@pytest.mark.parametrize(
    "unit",
    ["a", "a.", "token", "Ab1+", "-----END ", "--", "<", BEGIN, "http://", '\\"', "password=",
     "http://a:", "eyJ-", "x-", "password\\", "\n", " ", "BEGIN\n", "-u a", "value:"],
)  # fmt: skip
def test_a_long_line_takes_a_time_that_grows_with_its_length(unit: str) -> None:
    """This test would take hours if a pattern looked at each pair of letters."""
    Cleaner(()).text(unit * (600_000 // len(unit)))
