"""Who hears of runs that failed: a webhook that ``EYRIE_NOTIFY_URL`` names, called by an automation of Prefect."""

from __future__ import annotations

import os
from typing import Any

from xcore.errors import ConfigError

VARIABLE = "EYRIE_NOTIFY_URL"
BLOCK, AUTOMATION = "eyrie-notify", "eyrie-notify"
# Slack, Mattermost and many others show the field `text` of what is posted to them.
PAYLOAD = (  # a message may have several lines, and a name any character
    '{"text": {{ (flow.name ~ " run " ~ flow_run.name ~ " is " ~ flow_run.state.name ~ ": " '
    '~ (flow_run.state.message or "")) | tojson }} }'
)


def notifications() -> list[dict[str, Any]]:
    """The automation that posts to the webhook when a run fails or crashes; none where the variable is not set.

    The address is kept on the server as a block: it may hold a secret, so it is in no file.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return []
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"{VARIABLE} must be an address with http:// or https://, got {address[:20]!r}")
    from prefect.blocks.webhook import Webhook

    block: Any = Webhook(method="POST", url=address, headers={"Content-Type": "application/json"})
    identity = block.save(BLOCK, overwrite=True)
    return [
        {
            "name": AUTOMATION,
            "description": f"A run that failed or crashed is told to the webhook of {VARIABLE}.",
            "trigger": {
                "type": "event",
                "posture": "Reactive",
                "expect": ["prefect.flow-run.Failed", "prefect.flow-run.Crashed"],
                "match": {"prefect.resource.id": "prefect.flow-run.*"},
                "threshold": 1,
            },
            "actions": [{"type": "call-webhook", "block_document_id": str(identity), "payload": PAYLOAD}],
        }
    ]
