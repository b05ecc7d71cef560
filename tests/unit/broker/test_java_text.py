"""Text as Java processes it. The expected values come from Java 25's String and Pattern."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.java_text import java_pattern, trimmed
from barnabas.broker.security.acls import Operation, PatternType, Permission, ResourceType
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.jaas import JaasError, parse_jaas
from barnabas.broker.security.plain import PlainServer
from barnabas.broker.security.principals import MappingError, PrincipalMapper
from barnabas.broker.security.scram import SCRAM_SHA_256, AuthenticationError, ScramServer
from barnabas.broker.security.stored import Acl
from barnabas.broker.security.users import parse_users
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.setting import ConfigError

UNICODE_BLANKS = "\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000"
ASCII_BLANKS = "".join(map(chr, range(0x21)))


def test_java_trims_only_ascii_blanks() -> None:
    assert trimmed(f"{ASCII_BLANKS}a b{ASCII_BLANKS}") == "a b"
    for blank in UNICODE_BLANKS:
        assert trimmed(f" {blank}a{blank} ") == f"{blank}a{blank}"
        assert f"{blank}a".strip() == "a", "Python's does"


@pytest.mark.parametrize(
    ("pattern", "text", "is_matched"),
    [
        (r"\w+", "admin", True),
        (r"\w+", "adm\u0456n", False),  # a Cyrillic letter
        (r"\d+", "12", True),
        (r"\d+", "\u0661", False),  # an Arabic digit
        (r"a\sb", "a b", True),
        (r"a\sb", "a\xa0b", False),
        (r"a\Sb", "a\xa0b", True),
        (".*", "ab", True),
        (".*", "a\nb", False),
        (".*", "a\rb", False),
        (".*", "a\x85b", False),
        (".*", "a\u2028b", False),
        (".+$", "a\r", False),
        (r"a\.b", "a.b", True),
        (r"a\.b", "axb", False),
        ("[.]", ".", True),
        ("[.]", "\r", False),
        ("[^,]+", "a\u2028b", True),
        ("[]].", "]x", True),
        ("[^]].", "ax", True),
        ("(?i)cn=k", "CN=K", True),
        ("(?i)cn=k", "CN=\u212a", False),  # the Kelvin sign
    ],
)
def test_patterns_know_ascii(pattern: str, text: str, is_matched: bool) -> None:
    assert (java_pattern(pattern).fullmatch(text) is not None) is is_matched


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z&&[^b]]", "[a[b]]", r"\p{L}", r"\Qa\E", "(?u)a", "(", r"a\v", r"[\b]", r"\0101", "a{",
        "a{,3}", "(?#c)a", "(?P<n>a)", "(?a)a", "(?s).", "(?m)a$", "(?x)a b",
    ],
)  # fmt: skip
def test_patterns_that_differ_between_java_and_python_are_refused(pattern: str) -> None:
    """Java and Python read these patterns differently, or only one of them accepts the pattern."""
    with pytest.raises((re.error, ValueError)):
        java_pattern(pattern)
    with pytest.raises(MappingError):
        PrincipalMapper(f"RULE:{pattern}/x/")


@pytest.mark.parametrize(
    ("rule", "name", "made"),
    [
        (r"RULE:CN=(\w+)/$1/", "admin", "admin"),
        (r"RULE:CN=(\w+)/$1/", "adm\u0456n", None),
        (r"RULE:CN=(\w+)/$1/", "admin\xa0", None),
        ("RULE:CN=(.*)/$1/", "a\x85b", None),
        ("RULE:.*/x/", "ab", "xx"),  # String.replaceAll also finds the empty text at the end
        ("RULE:(.*)/$1/", "ab", "CN=ab"),
        ("RULE:CN=a|CN=ab/x/", "ab", "xb"),
        ("RULE:CN=(.*?)/$1!/", "ab", "!ab"),
        ("RULE:CN=(.*)/$12/", "a", "a2"),
        ("RULE:CN=(.*)/$2/", "a", "$2"),
        ("RULE:CN=(.*)/$0/", "a", "CN=a"),
        ("RULE:(.*?)//", "ab", "CN=ab"),  # after an empty match, a letter is skipped
        ("RULE:(.*?)/!/", "ab", "!C!N!=!a!b!"),
        ("RULE:([^,]*?)$/$1!/", "a\r", "CN=a!!\r!"),
        (r"RULE:(.*?)\Z(\r|\n)*/$1/", "a\r\n", "CN=a"),
        ("RULE:CN=a$/x/", "a\n", None),
        (r"RULE:CN=(\w+)\b.*/$1/", "admin-1", "admin"),
        (r"RULE:CN=(\w+)\b.*/$1/", "admin\u0456", None),  # since Java 19, this is a word boundary
        (r"RULE:CN=(.*)/\$1\\/", "a", "$1\\"),
        ("RULE:^CN=(.*)$/$1/L", "\u0130A\u03a3", "i\u0307a\u03c2"),
        ("RULE:^CN=(.*)$/$1/U", "\xdf\u0149\u01c5i", "SS\u02bcN\u01c4I"),
    ],
)
def test_rules_make_the_names_that_java_makes(rule: str, name: str, made: str | None) -> None:
    certificate = {"subject": ((("commonName", name),),)}
    if made is None:
        with pytest.raises(OSError, match="no rule of"):
            PrincipalMapper(rule).principal(certificate)
    else:
        assert PrincipalMapper(rule).principal(certificate) == f"User:{made}"


@pytest.mark.parametrize("replacement", ["$1", "$0$12", "$", "a$ b", "${n}", "$\u0661", "a\\"])
def test_replacements_that_are_invalid_in_java_are_refused(replacement: str) -> None:
    """Apache Kafka closes each connection whose principal such a rule matches."""
    with pytest.raises((MappingError, ValueError)):
        PrincipalMapper(f"RULE:.*/{replacement}/")


@pytest.mark.parametrize("blank", UNICODE_BLANKS)
def test_a_blank_that_is_not_ascii_is_a_part_of_a_name(blank: str) -> None:
    """This holds for all settings that contain names of users. As in Apache Kafka, a name with such
    a blank belongs to another user.
    """
    properties = {"super.users": f"User:admin{blank};User:b"}
    assert BrokerConfig.from_properties(properties).super_users == (f"User:admin{blank}", "User:b")
    assert parse_users(f"admin{blank}:pass{blank}\n") == {f"admin{blank}": f"pass{blank}"}
    text = f'Module required user_admin{blank}="x";'
    assert parse_jaas(text).passwords == {f"admin{blank}": "x"}
    with pytest.raises(JaasError):
        parse_jaas(f'Module required{blank}user_admin="x";')
    with pytest.raises(ConfigError):
        BrokerConfig.from_properties({"num.partitions": f"1{blank}"})
    audiences = {"sasl.oauthbearer.expected.audience": f"a ,\tb{blank}"}
    config = BrokerConfig.from_properties(audiences)
    assert config["sasl.oauthbearer.expected.audience"] == ("a", f"b{blank}")


ALIKE = ("admin\xa0", "admin\xad", "ADMIN", "\uff41dmin", "adm\u0131n", "a\u0308dmin", "\xe4dmin")


@pytest.mark.parametrize("name", ALIKE)
def test_names_that_look_alike_are_different_users(name: str) -> None:
    """As in Apache Kafka, names are compared unchanged: no mechanism and no ACL normalises them, as
    SASLprep would.
    """
    asked: list[str] = []
    # append returns None, which means that there is no such user
    scram = ScramServer(SCRAM_SHA_256, asked.append, "nonce")
    with pytest.raises(AuthenticationError, match="there is no"):
        scram.evaluate(f"n,,n={name},r=x".encode())
    assert asked == [name]
    with pytest.raises(AuthenticationError, match="unknown user"):
        PlainServer({"admin": "pw", "\u00e5": "pw"}).evaluate(f"\0{name}\0pw".encode())
    acl = Acl(
        ResourceType.TOPIC, "*", PatternType.LITERAL, "User:admin", "*", Operation.READ,
        Permission.ALLOW,
    )  # fmt: skip
    metadata: Any = SimpleNamespace(acls={0: acl})
    for authorizer in (Authorizer(metadata), Authorizer(metadata, ["User:admin"])):
        asked_of = partial(
            authorizer.decide, host="192.0.2.1", operation=Operation.READ,
            resource_type=ResourceType.TOPIC, name="t",
        )  # fmt: skip
        assert asked_of("User:admin") and not asked_of(f"User:{name}")
