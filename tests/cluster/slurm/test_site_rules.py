"""The file by which administrators bind all controllers: what it may say, who may write it, what holds without it."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from pathlib import Path

import pytest

from offcut.cluster.slurm import site_rules
from offcut.cluster.slurm.claim_choice import against_claims, choose_claims
from offcut.cluster.slurm.idle_nodes import Candidate
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.site_rules import ENV_SITE_FILE, SiteRules, SiteRulesFile, parse_rules
from offcut.cluster.slurm.site_survey import rules_fact
from offcut.errors import InputError

EXAMPLE = Path(__file__).parents[3] / "docs" / "site.toml"
MONDAY_9 = datetime(2026, 1, 5, 9, 0)
MONDAY_12 = datetime(2026, 1, 5, 12, 0)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose files these are")


def test_the_example_of_the_docs_has_every_key() -> None:
    rules = parse_rules(EXAMPLE.read_text(), str(EXAMPLE))
    assert rules.model_fields_set == set(SiteRules.model_fields)
    assert rules.claim
    assert (rules.max_nodes, rules.max_nodes_per_user, rules.shares["ann"]) == (200, 50, 2.0)
    assert rules.against_claims(MONDAY_9) == "quiet hours of the site's rules"
    assert rules.against_claims(MONDAY_12) == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("claim = 0", "claim: Input should be a valid boolean"),
        ("max_nodes = -1", "max_nodes: Input should be greater than or equal to 0"),
        ("quiet = ['at noon']", "not quiet hours"),
        ("[shares]\nann = 0", "shares.ann: Input should be greater than 0"),
        ("clam = false", "unknown key 'clam'"),
        ("claim = ", "is not TOML"),
    ],
)
def test_what_cannot_be_a_rule_is_named(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        parse_rules(text, "site.toml")
    assert str(refused.value).startswith("site.toml: ")


def test_a_switched_off_site_holds_no_node_and_says_why() -> None:
    off = SiteRules(claim=False, reason="maintenance")
    site = make_site({"partition": "idle"}, "test")
    idle = [Candidate(node="n1", safe=True, why="")]
    choice = choose_claims(idle, site, MONDAY_12, rules=off, held=2)
    assert (choice.most, choice.chosen) == (0, [])
    assert choice.limit == "the site's rules forbid claims (maintenance)"
    assert against_claims(site, SiteRules(), MONDAY_12) == ""
    assert against_claims(make_site({"partition": "idle", "quiet": ["00:00-24:00"]}, "t"), SiteRules(), MONDAY_12)


def opened(path: Path, text: str, mode: int = 0o644) -> SiteRulesFile:
    path.write_text(text)
    path.chmod(mode)
    file = SiteRulesFile((path,))
    asyncio.run(file.open())
    return file


def rewrite(path: Path, text: str) -> None:
    # As editors do, and so that a change within one tick of the clock is a change.
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(path)


@needs_root
def test_the_last_rules_hold_while_the_file_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    file = opened(path, "max_nodes = 3")
    for spoil in (
        lambda: rewrite(path, "max_nodes = "),
        lambda: rewrite(path, "max_nodes = 5\nunknown = 1"),
        lambda: (rewrite(path, "max_nodes = 5"), path.chmod(0o666)),
        lambda: (rewrite(path, "max_nodes = 5"), os.chown(path, 65534, 0)),
        path.unlink,
        path.mkdir,
    ):
        spoil()
        file.read()
        assert file.rules == SiteRules(max_nodes=3)
        assert str(path) in file.trouble
        file.read()
        assert file.trouble, "not only once"
    path.rmdir()
    rewrite(path, "max_nodes = 4")
    file.read()
    assert (file.rules, file.trouble) == (SiteRules(max_nodes=4), "")


@needs_root
def test_the_kill_switch_works_beside_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    file = opened(path, "max_nodes = 3")
    rewrite(path, "claim = false\nmaxnodes = 3")
    file.read()
    assert file.rules == SiteRules(claim=False, max_nodes=3)
    assert "unknown key" in file.trouble


@needs_root
@pytest.mark.parametrize(("mode", "owner"), [(0o664, 0), (0o646, 0), (0o644, 65534)])
def test_a_file_that_others_can_write_is_refused_at_the_start(tmp_path: Path, mode: int, owner: int) -> None:
    path = tmp_path / "site.toml"
    path.write_text("claim = true")
    path.chmod(mode)
    os.chown(path, owner, 0)
    with pytest.raises(InputError, match="can be written by others than root"):
        asyncio.run(SiteRulesFile((path,)).open())


@needs_root
def test_the_system_s_file_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, given = tmp_path / "system.toml", tmp_path / "given.toml"
    monkeypatch.setattr(site_rules, "SYSTEM_FILE", system)
    given.write_text("max_nodes = 7")
    file = SiteRulesFile.locate({ENV_SITE_FILE: str(given)})
    asyncio.run(file.open())
    assert file.rules.max_nodes == 7
    system.write_text("claim = false")
    file.read()
    assert not file.rules.claim, "it has come while the controller runs"
    monkeypatch.setenv(ENV_SITE_FILE, str(given))
    fact = asyncio.run(rules_fact())
    assert (fact.verdict, fact.found) == ("note", f"{system}: claim = False")
    assert "forbid claims" in fact.next_step


def test_no_file_allows_everything_and_a_named_one_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_rules, "SYSTEM_FILE", tmp_path / "none.toml")
    file = SiteRulesFile.locate({})
    asyncio.run(file.open())
    assert (file.rules, file.path, file.trouble) == (SiteRules(), None, "")
    with pytest.raises(InputError, match="does not exist"):
        asyncio.run(SiteRulesFile.locate({ENV_SITE_FILE: str(tmp_path / "gone.toml")}).open())


@needs_root
def test_a_change_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_rules, "_POLL_S", 0.01)
    path = tmp_path / "site.toml"
    file = opened(path, "claim = true")

    async def changed() -> None:
        event = asyncio.Event()
        watching = asyncio.create_task(file.watch(event.set))
        await asyncio.sleep(0.05)
        assert not event.is_set()
        rewrite(path, "claim = false")
        await asyncio.wait_for(event.wait(), 60)
        watching.cancel()

    asyncio.run(changed())
    assert not file.rules.claim
