"""What the documentation says in numbers, each beside the expression over raw files that makes it."""
