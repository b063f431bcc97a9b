"""Reads how a Slurm is set up: its configuration, partitions, nodes, QOS, and what accounting allows us."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from offcut.cluster.slurm import text
from offcut.cluster.slurm.account import user_name
from offcut.cluster.slurm.commands import CommandError, Commands
from offcut.cluster.slurm.records import AccountRow, AssociationRow, NodeSetup, PartitionRow, QosRow, expand


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSetup:
    """The administrator's settings, and our associations. They seldom change, so they are read once, at the start."""

    #: `scontrol show config`: names to values.
    config: Mapping[str, str]
    partitions: Mapping[str, PartitionRow]
    nodes: Mapping[str, NodeSetup] = field(default_factory=dict)
    #: Empty without slurmdbd, or where it does not answer.
    qos: Mapping[str, QosRow] = field(default_factory=dict)
    #: Those that sacctmgr shows us.
    accounts: Mapping[str, AccountRow] = field(default_factory=dict)
    #: Our own.
    associations: tuple[AssociationRow, ...] = ()
    user: str = ""
    #: Administrator, Operator or None, as sacctmgr says.
    admin_level: str = "None"
    default_account: str = ""

    @property
    def sees_all_jobs(self) -> bool:
        """Whether `squeue` shows us the jobs of other users."""
        return self.sees_all("jobs")

    def sees_all(self, kind: str) -> bool:
        """Return whether Slurm shows us what others have of this kind: `jobs`, `reservations`, as in PrivateData."""
        slurm_user = self.config.get("SlurmUser", "").partition("(")[0]
        is_operator = self.user in ("root", slurm_user) or self.admin_level in ("Administrator", "Operator")
        return is_operator or kind not in self.config.get("PrivateData", "").split(",")

    def sharing(self, partition: str) -> list[PartitionRow]:
        """Return the other partitions that are up and have nodes in common with this one."""
        nodes = frozenset(expand(self.partitions[partition].nodes))
        others = (row for row in self.partitions.values() if row.name != partition and row.up)
        return [row for row in others if not nodes.isdisjoint(expand(row.nodes))]

    def association(self, account: str, partition: str) -> AssociationRow | None:
        """Return our association with this account (empty: our default), preferably the one of this partition."""
        account = account or self.default_account
        fit = [row for row in self.associations if row.partition in ("", partition) and account in ("", row.account)]
        if len({row.account for row in fit}) != 1:
            return None
        return max(fit, key=lambda row: row.partition == partition)

    def lineage(self, account: str) -> Iterator[AccountRow]:
        """Yield the account and those above it, as far as sacctmgr shows them."""
        seen = set()
        while (row := self.accounts.get(account)) is not None and account not in seen:
            yield row
            seen.add(account)
            account = row.parent

    @property
    def limited_accounts(self) -> dict[str, frozenset[str]]:
        """For each account, itself and those above it that have a limit for all their users together."""
        return {name: frozenset(row.name for row in self.lineage(name) if row.limited) for name in self.accounts}

    def qos_of(self, given: str, account: str, partition: str) -> QosRow | None:
        """Return the QOS that a pilot would have: the given one, else our default. None if that is not known."""
        association = self.association(account, partition)
        name = given or (association.default_qos if association else "")
        return self.qos.get(name)


async def read_setup(commands: Commands) -> SlurmSetup:
    """Read how this Slurm is set up. ClusterError if slurmctld does not answer; slurmdbd may be down."""
    config, partitions, nodes = await asyncio.gather(
        commands.run(("scontrol", "show", "config")),
        commands.run(("scontrol", "show", "partition", "--all", "--oneliner")),
        commands.run(("scontrol", "show", "node", "--all", "--oneliner")),
    )
    settings = text.read_config(config)
    user = user_name()
    qos: dict[str, QosRow] = {}
    accounts: dict[str, AccountRow] = {}
    associations: list[AssociationRow] = []
    admin_level, default_account = "None", ""
    if settings.get("AccountingStorageType") == "accounting_storage/slurmdbd":
        ask = ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show")
        cluster = f"cluster={settings.get('ClusterName', '')}"
        mine, accounts_alone = ("where", f"user={user}", cluster), ("where", "user=", cluster)
        try:
            shown_qos, shown_accounts, shown_associations, shown_user = await asyncio.gather(
                commands.run((*ask, "qos", f"format={text.QOS_FORMAT}")),
                commands.run((*ask, "association", *accounts_alone, f"format={text.ACCOUNT_FORMAT}")),
                commands.run((*ask, "association", *mine, f"format={text.ASSOCIATION_FORMAT}")),
                commands.run((*ask, "user", user, "format=AdminLevel,DefaultAccount")),
            )
        except CommandError:
            # Without slurmdbd no QOS is known: preemption that depends on one counts as not shown.
            pass
        else:
            qos = text.read_qos(shown_qos)
            accounts = text.read_accounts(shown_accounts)
            associations = text.read_associations(shown_associations)
            admin_level, _, default_account = shown_user.strip().partition("|")
    return SlurmSetup(
        config=settings,
        partitions=text.read_partitions(partitions),
        nodes=text.read_node_setups(nodes),
        qos=qos,
        accounts=accounts,
        associations=tuple(associations),
        user=user,
        admin_level=admin_level,
        default_account=default_account,
    )
