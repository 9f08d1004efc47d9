"""Pots for agents, by the Model Context Protocol: read a document, ask it, recall passages, list pots."""
