"""The server's routes and everything around them: who may ask, how much, and how an answer looks."""
