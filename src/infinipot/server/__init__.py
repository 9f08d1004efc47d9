"""A server anyone can call: OpenAI's routes, pots by name, a page, and memory known before it starts.

settings.py               what an operator may choose
lifecycle.py ray_app.py   the server as a process of its own, or on Ray Serve
http/                     routes, limits, keys and errors; the only part that knows HTTP
page/                     the page at /
scheduler/                one thread, one model, a fixed number of pots: which request goes on next
"""
