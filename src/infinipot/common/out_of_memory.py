"""Whether an error means that memory ran out: torch on a CPU has no type of its own for it."""


def out_of_memory(error: BaseException | None) -> bool:
    """Say whether an error, or a cause of it, is the system's, torch's or a card's out-of-memory."""
    while error is not None:
        named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if named or "allocate memory" in str(error) or "CUDA out of memory" in str(error):
            return True
        error = error.__cause__
    return False
