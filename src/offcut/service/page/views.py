"""Makes the parts of each view: named pieces of HTML, and of JSON for figures.

A view is named `overview`, `nodes`, `job:ID` or `sweep:ID`.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from offcut.control import JobState
from offcut.errors import InputError
from offcut.process.daemon_thread import in_daemon_thread
from offcut.service import job_lookup, sweep_lookup
from offcut.service.controller import Controller
from offcut.service.loss_history import stable_points
from offcut.service.page import job_view, node_view, overview
from offcut.service.page.log_tail import log_tails
from offcut.service.page.node_use import NodeUse, count_nodes
from offcut.service.page.rendering import render
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal

#: At most this many trials of a sweep are in a table, those that were started last.
_MOST_TRIALS = 200


class Views:
    """The views of one controller.

    Args:
        controller: whose state is shown.
        journal: has what happened to a job.
        paths: where the logs of jobs are.
    """

    def __init__(self, controller: Controller, journal: Journal, paths: StatePaths) -> None:
        self.use = NodeUse()
        self._controller = controller
        self._journal = journal
        self._paths = paths
        #: The event after which a job's words were made, and the words: they take a question to the solver.
        self._words: dict[str, tuple[int, dict[str, str]]] = {}

    def note_use(self) -> None:
        """Note who has the nodes now."""
        now_s = self._controller.clock.now()
        self.use.note(count_nodes(now_s, self._controller.state))

    async def parts(self, view: str) -> dict[str, str]:
        """Return the parts of a view by name.

        Raises:
            InputError: There is no such view, job or sweep.
        """
        kind, _, name = view.partition(":")
        match kind, name:
            case "overview", "":
                return await self._overview()
            case "nodes", "":
                return {"nodes": render("_nodes.html", **node_view.nodes(self._controller))}
            case "job", name if name:
                return await self._job(name)
            case "sweep", name if name:
                return self._sweep(name)
        raise InputError(f"There is no view called {view}.", next_step="Begin with the overview.")

    async def _overview(self) -> dict[str, str]:
        controller = self._controller
        self.note_use()
        kind = controller.cluster.describe().get("kind", "")
        return {
            "summary": render("_summary.html", **overview.summary(controller)),
            "use": json.dumps(asdict(self.use.points[-1])),
            "jobs": render("_jobs.html", **overview.jobs(controller)),
            "sweeps": render("_sweeps.html", rows=overview.sweeps(controller)),
            "reclaims": render("_reclaims.html", kind=kind, **await overview.reclaims(controller)),
        }

    async def _job(self, job_id: str) -> dict[str, str]:
        controller = self._controller
        found = job_lookup.find(controller, job_id)
        its = found.job.id
        told = job_view.facts(controller, its)
        tails = await in_daemon_thread(log_tails, self._paths.job(its) / "logs")
        parts = {
            "facts": render("_facts.html", job=told["job"]),
            "resizes": render("_resizes.html", resizes=told["resizes"]),
            "log": render("_log.html", tails=tails),
            **await self._words_of(its),
        }
        if isinstance(found, JobState) and found.progress.step:
            loss = found.progress.loss
            parts["loss"] = json.dumps({"step": found.progress.step, "loss": loss if math.isfinite(loss) else None})
        return parts

    async def _words_of(self, job_id: str) -> dict[str, str]:
        """Return why the job has its nodes, and what happened to it last."""
        event_id = self._controller.state.event_id
        known = self._words.get(job_id)
        if known is not None and known[0] == event_id:
            return known[1]
        told = await job_view.why(self._controller, self._journal, job_id)
        words = {
            "why": render("_why.html", words=told["words"], decision=told["decision"]),
            "story": render("_story.html", story=told["story"]),
        }
        self._words = {job: kept for job, kept in self._words.items() if kept[0] == event_id}
        self._words[job_id] = (event_id, words)
        return words

    def _sweep(self, name: str) -> dict[str, str]:
        state, now_s = self._controller.state, self._controller.clock.now()
        sweep = sweep_lookup.find(state, name)
        trials = sweep_lookup.trials(state, sweep, now_s)
        shown = trials[::-1][:_MOST_TRIALS]
        line = sweep_lookup.shown(state, sweep, now_s)
        return {"sweep": render("_sweep.html", sweep=line, trials=shown, more=len(trials) - len(shown))}

    async def loss(self, job_id: str) -> dict[str, Any]:
        """Return the numbers of the figure of a job's loss: `step` and `loss`. InputError: no such job."""
        its = job_lookup.find(self._controller, job_id).job
        points = stable_points(await in_daemon_thread(self._controller.losses.read, its.id))
        finite = [point for point in points if math.isfinite(point.loss)]
        return {"step": [point.step for point in finite], "loss": [point.loss for point in finite]}
