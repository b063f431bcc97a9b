"""What happened in a simulated run: the digest of all of it, counts, and the story of its end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from hashlib import blake2b

#: This many lines of the story are kept.
_STORY = 400


class Trace:
    """Every delivery, decision, effect and fault, in order.

    `now` is the simulated time, `root` the directory whose name differs from run to run.
    """

    def __init__(self, now: Callable[[], float], root: str, *, verbose: bool = False) -> None:
        self._now = now
        self._root = root
        self._verbose = verbose
        self._digest = blake2b(digest_size=16)
        self.events = 0
        self.faults: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self._story: deque[tuple[float, str, str]] = deque(maxlen=None if verbose else _STORY)

    def event(self, who: str, what: str) -> None:
        """Note one call of a component's decisions, or one delivery."""
        self.events += 1
        self.kinds[who.partition(" ")[0]] += 1
        self.note(who, what)

    def fault(self, kind: str, what: str) -> None:
        """Note that a fault was injected."""
        self.faults[kind] += 1
        self.note(f"fault {kind}", what)

    def note(self, who: str, what: str) -> None:
        """Note what does not count as an event: an effect, a line of a log."""
        now_s = self._now()
        if self._root in what:
            what = what.replace(self._root, "STATE")
        self._digest.update(f"{now_s!r} {who} {what}\n".encode(errors="replace"))
        self._story.append((now_s, who, what))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def story(self, last: int = _STORY) -> list[str]:
        """Return the last lines of what happened, oldest first."""
        lines = list(self._story)[-last:]
        return [f"{at_s:10.3f} s  {who}: {what[:240]}" for at_s, who, what in lines]
