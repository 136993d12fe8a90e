"""Which version of a registered model serves: the champion, who challenges it, and the way back."""

from __future__ import annotations

from typing import Any

from tasks.model_parts import parts_of
from tasks.model_versions import CHALLENGER, CHAMPION, REPLACED_TAG, ROLLED_BACK_TAG, Version, champion, versions
from tasks.score import ModelParts
from tasks.tracking_client import tracking_client
from xcore.errors import ArtifactError, ConfigError


def champion_parts(name: str) -> tuple[ModelParts | None, str]:
    """The champion, or None with the reason where there is one but it cannot be opened here."""
    current = champion(name)
    if current is None:
        return None, ""
    try:
        return parts_of(current.model), ""
    except (ArtifactError, ConfigError) as error:
        return None, f"the champion, {current}, cannot be opened: {error}"


def mark_challenger(version: Version) -> None:
    """Point the alias `challenger` at a version."""
    if CHALLENGER not in version.aliases:
        tracking_client().set_registered_model_alias(version.name, CHALLENGER, str(version.number))


def promote(version: Version) -> bool:
    """Make a version the champion, and remember which one it replaces; False if it is the champion already."""
    client, current = tracking_client(), champion(version.name)
    if current and current.number == version.number:
        return False
    if current:
        client.set_model_version_tag(version.name, str(version.number), REPLACED_TAG, str(current.number))
    if ROLLED_BACK_TAG in version.tags:
        client.delete_model_version_tag(version.name, str(version.number), ROLLED_BACK_TAG)
    client.set_registered_model_alias(version.name, CHAMPION, str(version.number))
    return True


def apply_decision(version: Version, decision: str, reason: str) -> dict[str, Any]:
    """Carry out a decision (`promote` or `keep`) about a version; returns what was done and why, for a report."""
    current = champion(version.name)
    if current and current.number == version.number:
        done, reason = False, "it is the champion already"
    elif ROLLED_BACK_TAG in version.tags:
        back = version.tags[ROLLED_BACK_TAG]
        done, reason = False, f"it was rolled back to version {back} by hand, and is not promoted again by itself"
    else:
        done = decision == "promote" and promote(version)
    now = champion(version.name)
    return {
        "name": version.name,
        "version": version.number,
        "promoted": done,
        "champion": now.number if now else None,
        "reason": reason,
    }


def rollback(name: str) -> tuple[Version, Version]:
    """Give the alias `champion` back to the version that the champion replaced; returns both, the old one last.

    The version that lost it is tagged, and `retrain` does not promote it again.
    """
    client, known = tracking_client(), {version.number: version for version in versions(name)}
    current = next((version for version in known.values() if CHAMPION in version.aliases), None)
    if current is None:
        raise ConfigError(f"the registered model {name!r} has no champion to go back from")
    before = known.get(int(current.tags.get(REPLACED_TAG, 0)))
    if before is None:
        raise ConfigError(f"{current} replaced no other version, so there is none to go back to")
    client.set_model_version_tag(name, str(current.number), ROLLED_BACK_TAG, str(before.number))
    client.set_registered_model_alias(name, CHAMPION, str(before.number))
    return current, before
