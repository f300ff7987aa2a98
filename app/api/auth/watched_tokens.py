"""The file of tokens, read again when it changes: rotation without a restart."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from ...services.readiness import Check
from .token_file import MAX_FILE_BYTES, InvalidTokenFile, TokenTable, parse_tokens

logger = logging.getLogger(__name__)

#: Kubernetes itself takes up to a minute to bring a changed Secret into a pod.
_LOOK_EVERY_S: Final = 5.0
#: A file that stays broken is logged this often: 12 looks are a minute.
_COMPLAIN_EVERY: Final = 12
_STOPS_WITHIN_S: Final = 2.0


class WatchedTokens:
    """The tokens in force. A file that has become unreadable or wrong leaves them as they were.

    The content is compared, not the time of the file: a Secret is swapped by a symbolic link, and a file
    that is written in place may change twice within the resolution of its time.

    Raises:
        InvalidTokenFile: there are none to begin with.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = self._read()
        self.table: TokenTable = self._parse(self._content)
        self._complaint: str | None = None
        self._looks_broken = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch-tokens", daemon=True)
        logger.info("%d tokens are in force", len(self.table))

    def start(self) -> None:
        """Begin to watch the file."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOPS_WITHIN_S)

    def check(self) -> Check:
        """For `/readyz`: a broken file is told, but makes nothing unready.

        One typo in a Secret would otherwise take every replica out at once, while the tokens before it
        still serve.
        """
        if self._complaint is None:
            return Check(True, f"{len(self.table)} in force")
        return Check(True, "the file cannot be used, those before it are in force", "token_file_invalid")

    def look(self) -> None:
        """Take over what the file says now."""
        try:
            content = self._read()
            if content != self._content:
                self.table = self._parse(content)
                self._content = content
                logger.info("the file of tokens has changed: %d are in force", len(self.table))
        except InvalidTokenFile as error:
            self._complain(str(error))
            return
        self._complaint, self._looks_broken = None, 0

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint or self._looks_broken % _COMPLAIN_EVERY == 0:
            logger.error("%s; the tokens before it stay in force", complaint)
            self._looks_broken = 0
        self._complaint = complaint
        self._looks_broken += 1

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidTokenFile(
                f"SHARDSMITH_TOKENS_FILE: {str(self._path)!a} cannot be read: {error.strerror}"
            ) from None

    def _parse(self, content: bytes) -> TokenTable:
        try:
            return parse_tokens(content)
        except InvalidTokenFile as error:
            raise InvalidTokenFile(f"SHARDSMITH_TOKENS_FILE: {str(self._path)!a}: {error}") from None

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            try:
                self.look()
            except Exception:
                logger.exception("the file of tokens could not be looked at")
