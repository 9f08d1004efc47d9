"""A server anyone can call: OpenAI's routes, pots by name, a page, and memory known before it starts."""
