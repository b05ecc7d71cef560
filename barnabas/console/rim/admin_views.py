"""The views of settings, ACLs, users and quotas. Each is read by the request that a client would
send, with the permissions of the page's user. No response contains a secret: secret settings have
no value, and a SCRAM credential is shown as its mechanism and iterations.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.security.acls import Operation, PatternType, Permission, ResourceType
from barnabas.broker.security.scram import BY_NUMBER
from barnabas.console.rim.inner_client import connected
from barnabas.console.rim.source import BadRequest, Query, Source, Viewer
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

MOST_ROWS = 2000
ANY, MATCH_ANY = 1, 1  # the values of a filter for ACLs that match anything, and any pattern type
TOPIC_RESOURCE = 2
SOURCES = {
    1: "topic", 2: "broker, dynamic", 3: "all brokers, dynamic", 4: "broker, at its start",
    5: "default", 8: "group",
}  # fmt: skip


class AdminViews:
    """Answers with settings, ACLs, users and quotas."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def settings(self, viewer: Viewer, query: Query) -> Any:
        """The settings of a topic."""
        topic = query.get("topic", "")
        if topic not in self._source.look(viewer).topics:
            raise BadRequest(f"There is no topic {topic!r}.", 404)
        request = DescribeConfigsRequest(
            [DescribeConfigsResource(TOPIC_RESOURCE, topic, None)], include_documentation=True
        )
        with connected(self._source.server, viewer.principal, viewer.host) as client:
            answer = client.ask(request, DescribeConfigsResponse, 4)
        (result,) = answer.results
        if result.error_code:
            raise _refused(result.error_code, f"read the settings of topic {topic!r}")
        return {
            "topic": topic,
            "settings": [
                {
                    "name": row.name,
                    "value": None if row.is_sensitive else row.value,
                    "is_secret": row.is_sensitive,
                    # 1 is the source of a setting of the topic itself (DYNAMIC_TOPIC_CONFIG)
                    "is_default": row.config_source != 1,
                    "source": SOURCES.get(row.config_source, "unknown"),
                    "documentation": row.documentation or "",
                }
                for row in sorted(result.configs, key=lambda row: row.name)
            ],
        }

    def security(self, viewer: Viewer, query: Query) -> Any:
        """ACLs, users and quotas. If the user may not read one of them, an explanation replaces
        it.
        """
        with connected(self._source.server, viewer.principal, viewer.host) as client:
            acls = client.ask(
                DescribeAclsRequest(ANY, None, MATCH_ANY, None, None, ANY, ANY),
                DescribeAclsResponse,
                3,
            )
            users = client.ask(
                DescribeUserScramCredentialsRequest(None), DescribeUserScramCredentialsResponse, 0
            )
            quotas = client.ask(
                DescribeClientQuotasRequest([], strict=False), DescribeClientQuotasResponse, 1
            )
        return {
            "acls": _rows(acls.error_code, "ACLs", _acl_rows(acls)),
            "users": _rows(users.error_code, "users", self._user_rows(users)),
            "quotas": _rows(quotas.error_code, "quotas", _quota_rows(quotas)),
        }

    def _user_rows(self, answer: DescribeUserScramCredentialsResponse) -> list[dict[str, Any]]:
        """The users with SCRAM credentials and those of barnabas.users.file, by name, without
        secrets.
        """
        rows = {
            row.user: [
                f"{BY_NUMBER[info.mechanism].name}, {info.iterations:,} iterations"
                for info in row.credential_infos
                if info.mechanism in BY_NUMBER
            ]
            for row in answer.results
        }
        # The users of the users file are shown only to viewers that may see the SCRAM users.
        if answer.error_code:
            return []
        for user in self._source.state.config.users:
            rows.setdefault(user, []).append("barnabas.users.file")
        return [{"user": user, "credentials": rows[user]} for user in sorted(rows)]


def _rows(code: int, what: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of one part, or a note with the reason why there are none."""
    if code == Code.SECURITY_DISABLED:
        return {"rows": [], "note": "The broker has no authorizer: every client may do everything."}
    if code:
        return {"rows": [], "note": f"{_refused(code, f'read {what}')}"}
    return {"rows": rows[:MOST_ROWS], "total": len(rows), "note": ""}


def _acl_rows(answer: DescribeAclsResponse) -> list[dict[str, Any]]:
    """The ACLs of an answer as rows of the page, sorted."""
    rows = [
        {
            "principal": acl.principal,
            "permission": Permission(acl.permission_type).name.lower(),
            "operation": Operation(acl.operation).name.lower().replace("_", " "),
            "resource": ResourceType(resource.resource_type).name.lower().replace("_", " "),
            "name": resource.resource_name,
            "is_prefix": resource.pattern_type == PatternType.PREFIXED,
            "host": acl.host,
        }
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def _quota_rows(answer: DescribeClientQuotasResponse) -> list[dict[str, Any]]:
    return [
        {
            "entity": [[part.entity_type, part.entity_name] for part in entry.entity],
            "values": {value.key: value.value for value in entry.values},
        }
        for entry in answer.entries or ()
    ]


def _refused(code: int, what: str) -> BadRequest:
    """The error for the page if the broker refused a request: 403 if the user lacks a right."""
    name = Code(code).name if code in Code._value2member_map_ else str(code)
    if name.endswith("AUTHORIZATION_FAILED"):
        return BadRequest(f"You may not {what} ({name}).", 403)
    return BadRequest(f"The broker refuses to {what} ({name}).", 400)
