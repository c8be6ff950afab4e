"""Auditing: attacks that measure what a release really tells."""
