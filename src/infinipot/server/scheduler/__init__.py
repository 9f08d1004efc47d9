"""Requests served together with one model and a fixed number of pots; plain data in, events out, no HTTP."""
