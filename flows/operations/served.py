"""The version that a server answers with. One that is named by an alias follows the alias without a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from tasks.model_versions import find_version
from tasks.scoring_app import LoadedVersion

SECONDS_BETWEEN_LOOKS = 5.0

logger = logging.getLogger(__name__)


class Served:
    """The loaded version, which is exchanged as a whole.

    A new version is loaded beside the old one: both are in memory meanwhile, and requests go on being answered. If the
    registry cannot be reached or the new version cannot be loaded, the old one stays.

    Attributes
    ----------
    current : LoadedVersion
    failed : int or None
        Version to which the alias points, but which could not be loaded.
    """

    def __init__(self, name: str, which: str, load: Callable[..., LoadedVersion] = LoadedVersion) -> None:
        self.name, self.which = name, which
        self._load = load
        self.current = load(find_version(name, which))
        self.failed: int | None = None
        self._stop = Event()

    @property
    def follows(self) -> bool:
        """Whether the version is named by an alias, which may move."""
        return not self.which.isdecimal()

    def follow(self) -> None:
        """Look at the alias from time to time, in a thread of its own, until `stop`."""
        if self.follows:
            Thread(target=self._follow, name="follow-alias", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def look(self) -> None:
        """Load the version that the alias points at now, if it is another one."""
        wanted = find_version(self.name, self.which)
        if wanted.number in (self.current.version.number, self.failed):
            return
        logger.warning("loading %s, since %s points at it now", wanted, self.which)
        try:
            self.current, self.failed = self._load(wanted), None
        except Exception:
            self.failed = wanted.number
            logger.exception("%s cannot be loaded: %s goes on serving", wanted, self.current.version)

    def _follow(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_LOOKS):
            try:
                self.look()
            except Exception as error:  # the registry may be away for a while
                logger.warning("the registry could not be asked for %s: %s", self.which, error)
