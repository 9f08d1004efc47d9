"""transformers without its bars and warnings for a while."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' bars and warnings from the user for a while; errors still come through."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers import modeling_gguf_pytorch_utils as unpacking
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    hub_level, own_bar = hub_logging.get_verbosity(), getattr(unpacking, "tqdm", None)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)
    if own_bar is not None:  # past transformers' switch
        unpacking.tqdm = lambda items, **_: items
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if own_bar is not None:
            unpacking.tqdm = own_bar
        logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()
