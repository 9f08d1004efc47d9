"""One module per command: parse, call, print. Nothing heavy is imported before it is needed."""
