"""A server anyone can call: OpenAI's routes, pots by name, a page, and memory known before it starts.

settings.py   what an operator may choose
orders.py     what a request asks of the kitchen, and what comes back
kitchen.py    one thread, one model, a fixed number of pots: who reads and who speaks next
routes, app   HTTP; the only code that knows the web framework
"""
