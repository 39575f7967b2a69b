"""Facts between the ranks of one host and their parent: envelopes, calls, states."""
