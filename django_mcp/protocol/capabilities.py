"""
Client capabilities: which questions a client supports, and which a question needs.

"Servers MUST NOT send an inputRequests that the client has not declared support for". So a feature
counts as missing unless the client declares it, or its revision implies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .jsonrpc import JSON
from .revisions import Revision

ELICIT = "elicitation/create"


def needed(method: str, params: JSON) -> JSON:
    """Return the capabilities that a canonical question needs, as a client declares them."""
    return _NEEDED.get(method, _nothing)(params)


def offered(revision: Revision, declared: Mapping[str, Any]) -> JSON:
    """Return the capabilities of a client of that revision, with the features it implies."""
    found = {name: _features(features) for name, features in declared.items()}
    plain = {name: features for name, features in found.items() if features is not None}
    if ELICIT not in revision.asks:
        plain.pop("elicitation", None)
    if not revision.capability_features:
        # This revision has no names for features: forms are the only elicitation, and sampling may
        # always ask for context.
        return plain | {name: FEATURES[name] for name in FEATURES.keys() & plain.keys()}
    if "elicitation" in plain and not {"form", "url"} & plain["elicitation"].keys():
        # "An empty capabilities object is equivalent to declaring support for form mode only."
        plain["elicitation"] = plain["elicitation"] | {"form": {}}
    return plain


FEATURES: dict[str, JSON] = {"elicitation": {"form": {}}, "sampling": {"context": {}}}


def lacking(offered: Mapping[str, Any], required: Mapping[str, Any]) -> JSON:
    """Return the required capabilities that a client lacks; {} if the server may ask it."""
    return {name: need for name, need in required.items() if not _has(offered.get(name), need)}


def _has(features: Any, need: Mapping[str, Any]) -> bool:
    if not isinstance(features, dict):
        return False
    return all(_has(features.get(name), inner) for name, inner in need.items())


def _features(features: Any) -> JSON | None:
    """Return the declared features without those that are null; None if it is no object."""
    if not isinstance(features, dict):
        return None
    return {name: value for name, value in features.items() if value is not None}


def _nothing(params: JSON) -> JSON:
    return {}


def _elicitation(params: JSON) -> JSON:
    return {"elicitation": {params.get("mode", "form"): {}}}


def _sampling(params: JSON) -> JSON:
    features: JSON = {}
    if "tools" in params or "toolChoice" in params:
        features["tools"] = {}
    if params.get("includeContext", "none") != "none":
        features["context"] = {}
    return {"sampling": features}


def _roots(params: JSON) -> JSON:
    return {"roots": {}}


_NEEDED = {
    ELICIT: _elicitation,
    "roots/list": _roots,
    "sampling/createMessage": _sampling,
}
