"""UpdateFeatures: changes the levels of features at run time (KIP-584, KIP-778)."""

from __future__ import annotations

from functools import partial

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import ALTER
from barnabas.broker.api_row import ApiRow
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code, KafkaError, detached
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.request_context import RequestContext

UPGRADE_TYPES_SINCE, ALL_OR_NONE_SINCE = 1, 2  # the request versions that introduced these fields
# Features of Apache Kafka that have no effect with one broker, and their highest levels. They are
# accepted, since `kafka-features upgrade --release-version` names all features of a release.
WITHOUT_EFFECT = {"kraft.version": 1, "eligible.leader.replicas.version": 1}
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # an unsafe downgrade may lose metadata


def on_update_features(
    features: CurrentFeatures, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    """Change the levels of features. The new levels apply at once. They also apply after a restart,
    unless the setting `barnabas.features` sets other levels.

    In versions 0 and 1 of the request each feature is changed independently. From version 2 on
    either all features are changed or none. Errors: INVALID_UPDATE_VERSION for an unknown feature,
    an unsupported level, or a lower level if the request does not allow a downgrade.
    """
    updated: dict[str, int] = {}
    results, refused = [], None
    for update in request.feature_updates:
        code, message = Code.NONE, None
        try:
            _check(features, update, updated, context.api_version)
            updated[update.feature] = update.max_version_level
        except KafkaError as error:
            code, message = error.code, error.message
            refused = refused or detached(error)
        results.append(UpdatableFeatureResult(update.feature, code, message))
    if refused is not None and context.api_version >= ALL_OR_NONE_SINCE:
        return UpdateFeaturesResponse(
            error_code=refused.code, error_message=f"Nothing was changed. {refused.message}"
        )
    known = {feature.name for feature in features.finalized.supported}
    updated = {name: level for name, level in updated.items() if name in known}
    validate_only = request.validate_only and context.api_version >= UPGRADE_TYPES_SINCE
    if updated and not validate_only:
        features.update(updated)
    if context.api_version >= ALL_OR_NONE_SINCE:
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(error_message=None, results=results)


def _check(
    features: CurrentFeatures, update: FeatureUpdateKey, updated: dict[str, int], api_version: int
) -> None:
    """Check an update. Raises: KafkaError INVALID_UPDATE_VERSION."""
    name, level = update.feature, update.max_version_level
    kind = update.upgrade_type
    if api_version < UPGRADE_TYPES_SINCE:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refusal(update, f"the upgrade type {kind} is unknown: use 1, 2 or 3")
    if level < 0:
        raise _refusal(update, "a level is not below 0")
    feature = next((one for one in features.finalized.supported if one.name == name), None)
    if feature is None:
        if level > WITHOUT_EFFECT.get(
            name, 0
        ):  # an unknown feature has level 0, so setting 0 is no error
            raise _refusal(update, "this broker does not support it")
        return
    if not feature.min_version <= level <= feature.max_version:
        raise _refusal(update, f"its levels are {feature.min_version} to {feature.max_version}")
    if level < updated.get(name, features.finalized.level(name)) and kind == UPGRADE:
        raise _refusal(update, "that is a downgrade: ask for one (upgrade type 2 or 3)")


def _refusal(update: FeatureUpdateKey, reason: str) -> KafkaError:
    return KafkaError(
        Code.INVALID_UPDATE_VERSION,
        f"{update.feature} cannot have level {update.max_version_level}: {reason}.",
    )


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(57, "UpdateFeatures", 0, 2, flexible_from=0, most_elements=FEW),
        right=rule(on_cluster(ALTER)),
        handler=lambda parts: partial(on_update_features, parts.features),
    ),
)
