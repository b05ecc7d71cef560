"""ApiVersions: the supported APIs, versions and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from barnabas.broker.admission.guard_steps import rule
from barnabas.broker.api_row import ApiRow
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.settings.features import FinalizedFeatures
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.api_table import API_VERSIONS, BY_KEY
from barnabas.protocol.client_software import SOFTWARE_SINCE, names_software
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.request_context import RequestContext

TELEMETRY = (71, 72)
MIN_VERSION_0_SINCE = 4  # earlier versions leave out features whose lowest version is 0


def on_api_versions(
    connections: Mapping[int, ConnectionState],
    config: BrokerConfig,
    metadata: ClusterMetadata,
    features: CurrentFeatures,
    request: ApiVersionsRequest,
    context: RequestContext,
) -> ApiVersionsResponse:
    """The supported requests, and the features. The two requests for clients' metrics are listed
    if there are subscriptions.

    Errors: INVALID_REQUEST if the client's software name or version has characters that KIP-511
    does not allow.
    """
    if not names_software(request, context.api_version):
        return _response(Code.INVALID_REQUEST, ())
    if context.api_version >= SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        connections[context.connection_id].client_software = f"{name} {version}"
    wants_metrics = bool(metadata.client_metrics)
    spoken = config.release.apis.items()
    response = _response(
        Code.NONE, [api for key, api in spoken if wants_metrics or key not in TELEMETRY]
    )
    if context.api_version >= SOFTWARE_SINCE:
        _add_features(response, features.finalized, context.api_version)
    return response


def _add_features(
    response: ApiVersionsResponse, finalized: FinalizedFeatures, api_version: int
) -> None:
    """Add the supported and the finalised features (KIP-584). Level 0 is not finalised."""
    response.supported_features = [
        SupportedFeatureKey(feature.name, feature.min_version, feature.max_version)
        for feature in finalized.supported
        if feature.min_version > 0 or api_version >= MIN_VERSION_0_SINCE
    ]
    response.finalized_features_epoch = finalized.epoch
    response.finalized_features = [
        FinalizedFeatureKey(name, level, level) for name, level in finalized.levels.items() if level
    ]


def unsupported_version_response() -> ApiVersionsResponse:
    """The response to an unsupported version: error 35 and the versions of ApiVersions itself, to
    be sent in the form of version 0.
    """
    return _response(Code.UNSUPPORTED_VERSION, (BY_KEY[API_VERSIONS],))


def _response(code: Code, apis: Iterable[Api]) -> ApiVersionsResponse:
    keys = [ApiVersion(api.key, api.min_version, api.max_version) for api in apis]
    return ApiVersionsResponse(error_code=code, api_keys=keys)


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(18, "ApiVersions", 0, 4, flexible_from=3, most_elements=FEW),
        right=rule(),
        handler=lambda parts: partial(
            on_api_versions, parts.connections, parts.config, parts.metadata, parts.features
        ),
    ),
)
