"""What survives the controller: the journal of events with snapshots of the state, in SQLite on a node-local disk."""

from offcut.store.journal import Journal

__all__ = ["Journal"]
