"""Principals from certificates: subjects in the form that Java writes, and the rules that map them
to names.
"""

from __future__ import annotations

import pytest

from barnabas.broker.security.principals import MappingError, PrincipalMapper, distinguished_name

# The example of KIP-371, in the form that `ssl` returns.
DUKE = (
    (("countryName", "Unknown"),),
    (("stateOrProvinceName", "Unknown"),),
    (("localityName", "Unknown"),),
    (("organizationName", "Unknown"),),
    (("organizationalUnitName", "ServiceUsers"),),
    (("commonName", "serviceuser"),),
)


def named(rules: str, subject: object = DUKE) -> str:
    return PrincipalMapper(rules).principal({"subject": subject})


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (DUKE, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"),
        # examples of RFC 2253, section 5
        (
            ((("countryName", "GB"),), (("organizationName", "Sue, Grabbit and Runn"),),
             (("commonName", "L. Eagle"),)),
            r"CN=L. Eagle,O=Sue\, Grabbit and Runn,C=GB",
        ),
        (
            ((("organizationName", "Widget Inc."),),
             (("organizationalUnitName", "Sales"), ("commonName", "J. Smith"))),
            "OU=Sales+CN=J. Smith,O=Widget Inc.",
        ),
        (((("commonName", "# a "),),), r"CN=\# a\ "),
        # java.security: new X500Principal("EMAILADDRESS=a@b").getName()
        (((("emailAddress", "a@b"),),), "1.2.840.113549.1.9.1=#1603614062"),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(subject: object, text: str) -> None:
    assert distinguished_name(subject) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        # The examples of KIP-371 and KIP-457 with their results.
        ("DEFAULT", "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"),
        ("", "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "serviceuser"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=.*$/$1@$2/L", "serviceuser@serviceusers"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", "SERVICEUSER"),
        ("RULE:^cn=(.*?),dc=(.*?)$/$1@$2/, RULE:^CN=(.*?),.*$/$1/,DEFAULT", "serviceuser"),
        (r"RULE:^CN=(.*?),.*$/a\/$1$9/", "a/serviceuser$9"),
    ],
)  # fmt: skip
def test_rules_make_names(rules: str, name: str) -> None:
    assert named(rules) == f"User:{name}"


def test_a_subject_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(OSError, match="CN=serviceuser"):
        named("RULE:^CN=(.*?),OU=Others.*$/$1/")


def test_who_shows_no_certificate_is_anonymous() -> None:
    mapper = PrincipalMapper("RULE:x/y/")
    assert mapper.principal(None) == mapper.principal({}) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    "rules", ["DEFAULTS", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "DEFAULT RULE:a/b/", "x"]
)
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(MappingError):
        PrincipalMapper(rules)
