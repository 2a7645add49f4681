"""The cluster's objects, read and counted into the snapshots that decisions are made on."""
