"""Federated learning: clients keep their data, and a server that may not be honest averages what
they have learnt."""
