"""Conformance: does a shard, in any language, keep the written contract? See docs/shard-contract.md."""
