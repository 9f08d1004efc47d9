"""A server anyone can call: OpenAI's routes, pots by name, a page, and memory known before it starts.

    settings.py keys.py         what an operator may choose
    app.py run.py ray_app.py    the application; as a process of its own, or on Ray Serve
    auth.py limits.py errors.py who may come in, with how much, and how a refusal looks
    chat.py pots.py status.py pages.py   routes, with schema.py, objects.py, streams.py, spool.py, metrics.py
    service.py                  what every route shares
    page/                       the page at /

    orders.py ticket.py         what a request asks of the kitchen, and its way back
    kitchen.py jobs.py          one thread, one model: who reads and who speaks next
    courses.py prompts.py       what is done for each kind of order
    berths.py memory.py         a fixed number of pots, and the memory they take
    shelf.py                    a tenant's kept pots

Only the upper half knows HTTP.
"""
