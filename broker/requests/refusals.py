"""Responses with one error for everything that a request names. Pure.

`Message.error_response` makes them. The generator derives it from the schemas of a request and its
response (`protocol/generator/error_responses.py`). This module has the exceptions to the schemas.
"""

from __future__ import annotations

from barnabas.protocol.errors import Code
from barnabas.protocol.messages import offset_delete
from barnabas.protocol.messages.message import Message

OFFSET_DELETE = 47


def refused_rows(request: Message, version: int, code: Code) -> Message:
    """The response that refuses some rows of a request. The other rows are answered separately.

    For OffsetDelete each row gets an error, since one error for the whole response would hide the
    other rows.
    """
    if request.API_KEY != OFFSET_DELETE:
        return request.error_response(version, code)
    assert isinstance(request, offset_delete.OffsetDeleteRequest)
    return offset_delete.OffsetDeleteResponse(
        topics=[
            offset_delete.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    offset_delete.OffsetDeleteResponsePartition(row.partition_index, code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
