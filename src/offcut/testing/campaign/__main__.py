"""`python -m offcut.testing.campaign SEEDS=1:100 JSON=1`: runs seeds, both ends included, and says what they broke.

`EVENTS=N`: events per seed. `STORY=FILE`: write all that happened in the last seed to a file.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from hashlib import blake2b
from pathlib import Path

from offcut.testing.campaign.campaign import LEAST_EVENTS, SeedResult, run_seed
from offcut.testing.campaign.shrink import shortest

#: This much of the story of a failure is shown.
_STORY_LINES = 60


def main(arguments: list[str]) -> int:
    """Run the seeds. Return 1 if an invariant did not hold in one of them."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    first, _, last = given.get("SEEDS", "1:10").partition(":")
    seeds = range(int(first), int(last or first) + 1)
    events = int(given.get("EVENTS", LEAST_EVENTS))
    began_s = time.monotonic()
    digest = blake2b(digest_size=16)
    counted, violations = 0, 0
    faults: Counter[str] = Counter()
    for seed in seeds:
        result = run_seed(seed, events=events, verbose="STORY" in given)
        counted += result.events
        faults += result.faults
        violations += len(result.violations)
        digest.update(f"{seed} {result.digest}\n".encode())
        if "STORY" in given:
            Path(given["STORY"]).write_text("\n".join([*result.story, *result.violations]) + "\n")
        if result.violations:
            _say(explain(result))
        elif not given.get("JSON"):
            _say(f"seed {seed}: {result.events} events, {result.faults.total()} faults in {result.simulated_s:.0f} s")
    summary = {
        "seeds": [seeds.start, seeds.stop - 1],
        "events": counted,
        "faults": dict(sorted(faults.items())),
        "violations": violations,
        "events_per_s": round(counted / (time.monotonic() - began_s)),
        "digest": digest.hexdigest(),
    }
    _say(json.dumps(summary) if given.get("JSON") else "\n".join(f"{key}: {value}" for key, value in summary.items()))
    return 1 if violations else 0


def explain(result: SeedResult) -> str:
    """Return what broke: the seed, the shortest schedule that breaks it, and the story of that."""
    found = shortest(result)
    return "\n".join(
        [
            f"seed {result.seed} breaks an invariant after {result.events} events: {result.violations[0]}",
            f"The shortest schedule found has {len(found.actions)} of {len(result.actions)} actions:",
            *(f"  {action}" for action in found.actions),
            "The end of its story:",
            *found.story[-_STORY_LINES:],
            *found.violations,
            f"Again with: make campaign SEEDS={result.seed}:{result.seed}",
        ]
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
