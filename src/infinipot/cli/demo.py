"""placeholder"""
def demo() -> None:
    """x"""
