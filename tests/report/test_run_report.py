"""The report of a run has the figures of the journal and of the batch system."""

from __future__ import annotations

import json
import re

import pytest

from offcut.report import run_report
from offcut.report.run_report import write_report
from offcut.service.paths import StatePaths


def rows(document: str) -> list[list[str]]:
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", document)]


def test_node_seconds_and_resizes_come_from_the_journal(short_run: StatePaths) -> None:
    document = write_report(short_run).read_text()
    # 20 s of one node and 14 s of the other; 13 s claimed, 10 s of them in a generation.
    assert ["offered (idle for the queue)", "34", "100 %"] in rows(document)
    assert ["claimed", "13", "38 %"] in rows(document)
    assert ["trained (in a generation)", "10", "29 %"] in rows(document)
    assert "1 resizes; median 200 ms, 95 % within 200 ms." in document
    assert "No node was wanted while it was held." in document


def test_the_batch_systems_figures_count_where_they_are_there(short_run: StatePaths) -> None:
    taken = {"node": "n1", "wanted_s": 1014.0, "took_s": 0.25, "killed": False}
    late = {"node": "n2", "wanted_s": 1015.0, "took_s": 1.5, "killed": True}
    short_run.statistics.write_text(json.dumps({"idle_node_s": 40.0, "hand_backs": [taken, late]}))
    document = write_report(short_run).read_text()
    assert ["offered (idle for the queue)", "40", "100 %"] in rows(document)
    words = "2 nodes were wanted while held; 1 were released by a kill; the slowest was released after 1.50 s."
    assert words in document


@pytest.mark.parametrize(("held", "said"), [(True, "Held: no step lost"), (False, "BROKEN: no step lost")])
def test_each_promise_is_said_to_be_held_or_broken(short_run: StatePaths, held: bool, said: str) -> None:
    document = write_report(short_run, promises={"no step lost": held}).read_text()
    assert said in document


def test_a_line_of_telemetry_that_was_cut_short_is_left_out(short_run: StatePaths) -> None:
    whole = [json.dumps({"time_s": 1005.0 + i, "samples": {"a-1": 100 * i}}) for i in range(3)]
    short_run.telemetry.write_text("\n".join([*whole, '{"time_s": 1009.0, "sam']))
    assert "samples/s" in write_report(short_run).read_text()


def test_the_lines_before_those_of_the_telemetry_count_too(short_run: StatePaths) -> None:
    line = json.dumps({"time_s": 1005.0, "samples": {"a-1": 100}})
    short_run.older_telemetry.write_text(f"{line}\n")
    short_run.telemetry.write_text(line.replace("1005", "1006").replace("100}", "200}"))
    assert run_report._samples(short_run) == {"a-1": [(1005.0, 100), (1006.0, 200)]}
