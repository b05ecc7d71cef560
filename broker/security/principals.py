"""Makes the principals of clients that have a certificate: rules map the certificate's subject to a
name.

    ssl.principal.mapping.rules = RULE:PATTERN/REPLACEMENT/[LU], ..., DEFAULT

The first rule whose pattern matches the whole subject makes the name. $1 is the pattern's first
group; L and U make the name lower and upper case. Patterns are Java's: `\\w`, `\\d` and `\\s` match
only ASCII characters (`java_text`). DEFAULT is the subject itself, which is also the name if there
are no rules. A slash within a rule is escaped with a backslash.

Source: KIP-371, KIP-457. The subject has the form of RFC 2253, as written by Java's
X500Principal.getName(): the last part comes first. If an attribute's name is not in RFC 2253, its
object identifier and its encoded bytes are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.java_text import java_pattern, java_template, replaced, trimmed

Subject = tuple[tuple[tuple[str, str], ...], ...]
_KEYWORDS = {
    "commonName": "CN", "countryName": "C", "domainComponent": "DC", "localityName": "L",
    "organizationName": "O", "organizationalUnitName": "OU", "stateOrProvinceName": "ST",
    "streetAddress": "STREET", "userId": "UID",
}  # fmt: skip
_PRINTABLE, _IA5, _UTF8 = 0x13, 0x16, 0x0C
_NUMBERS = {  # object identifiers, each with the DER type that RFC 5280 specifies for its text
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "title": ("2.5.4.12", _UTF8),
    "givenName": ("2.5.4.42", _UTF8),
    "surname": ("2.5.4.4", _UTF8),
    "initials": ("2.5.4.43", _UTF8),
    "generationQualifier": ("2.5.4.44", _UTF8),
    "pseudonym": ("2.5.4.65", _UTF8),
    "name": ("2.5.4.41", _UTF8),
    "businessCategory": ("2.5.4.15", _UTF8),
    "postalCode": ("2.5.4.17", _UTF8),
    "organizationIdentifier": ("2.5.4.97", _UTF8),
}
_SPECIAL = re.compile(r'([,+"\\<>;])')
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)\s*(?:,|$)", re.ASCII)
_DEFAULT_RULE = re.compile(r"DEFAULT\s*(?:,|$)", re.ASCII)
_UNKNOWN_GROUP = re.compile(r"\$([0-9]+)")
Rule = Callable[[str], str | None]


class MappingError(ValueError):
    """The rules cannot be read. The text shows the unreadable part."""


class PrincipalMapper:
    """Maps the subjects of certificates to principals. Raises: MappingError if the rules cannot be
    read.
    """

    def __init__(self, rules: str) -> None:
        self._rules = list(_read_rules(trimmed(rules))) or [_subject_itself]

    def principal(self, certificate: Mapping[str, Any] | None) -> str:
        """The principal for a client's certificate, as decoded by `ssl`; ANONYMOUS without a
        certificate.

        Raises: OSError if no rule matches.
        """
        if not certificate:
            return ANONYMOUS
        subject = distinguished_name(certificate["subject"])
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return f"User:{name}"
        raise OSError(f"no rule of ssl.principal.mapping.rules matches the subject {subject!r}")


def distinguished_name(subject: Subject) -> str:
    """A subject as text, in the form of RFC 2253."""
    return ",".join(
        "+".join(_attribute(name, value) for name, value in part) for part in reversed(subject)
    )


def _attribute(name: str, value: str) -> str:
    """An attribute of a subject, as Java writes it (RFC 2253): KEYWORD=VALUE with escaped
    characters; for an attribute without a keyword its number, and the DER of its value in
    hexadecimal digits.
    """
    keyword = _KEYWORDS.get(name)
    if keyword is None:
        number, kind = _NUMBERS.get(name, (name, _UTF8))
        data = value.encode()
        length = bytes([len(data)]) if len(data) < 0x80 else _long_length(len(data))
        return f"{number}=#{(bytes([kind]) + length + data).hex()}"
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"{keyword}={escaped}"


def _long_length(length: int) -> bytes:
    """The DER encoding of a length that needs more than seven bits."""
    data = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(data)]) + data


def _read_rules(text: str) -> Iterator[Rule]:
    """The rules in the text of ssl.principal.mapping.rules, in order. Raises: MappingError."""
    at = 0
    while at < len(text):
        while text[at : at + 1] in (" ", ",", "\n"):
            at += 1
        if match := _DEFAULT_RULE.match(text, at):
            yield _subject_itself
        elif match := _RULE.match(text, at):
            yield _rule(*match.groups())
        elif at < len(text):
            raise MappingError(
                f"from character {at + 1} on it is neither DEFAULT nor "
                f"RULE:PATTERN/REPLACEMENT/ with L, U or nothing behind: {text[at : at + 40]}"
            )
        at = match.end() if match else at


def _subject_itself(subject: str) -> str:
    return subject


def _rule(pattern_text: str, replacement: str, case: str) -> Rule:
    """The function that maps a certificate's subject to a name by one RULE; its result is None if
    the pattern does not match. Takes: case, L or U for a name in small or large letters.
    """
    try:
        pattern = java_pattern(pattern_text.replace(r"\/", "/"))
    except (re.error, ValueError) as error:
        raise MappingError(f"the pattern {pattern_text} cannot be read: {error}") from error
    template = replacement.replace(r"\/", "/")
    if pattern.groups:
        template = _UNKNOWN_GROUP.sub(partial(_escaped_if_unknown, pattern.groups), template)
    try:
        make = java_template(template, pattern.groups)
    except ValueError as error:
        raise MappingError(f"the replacement {replacement} cannot be read: {error}") from error

    def apply(subject: str) -> str | None:
        if pattern.fullmatch(subject) is None:
            return None
        # Kafka makes the name with String.replaceAll, which replaces each match in the subject.
        # There may be several: `.*` also matches the empty text at the subject's end.
        name = replaced(pattern, make, subject)
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return apply


def _escaped_if_unknown(group_count: int, reference: re.Match[str]) -> str:
    """The text of a group reference. If the pattern does not have that group, a backslash is added,
    which escapes the reference.
    """
    first = int(reference[1][0])
    return reference[0] if first <= group_count else rf"\{reference[0]}"
