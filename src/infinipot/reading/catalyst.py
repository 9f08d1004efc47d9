"""Catalyst prompts (paper, section 3.3.1 and Table 2): named texts, or any text of the user's own.

The paper's wordings are not printed in the text we work from; these follow its
description. `padding` and `unrelated` are its controls: prompts that do not
serve the aim.
"""

from __future__ import annotations

import difflib

from infinipot.errors import ConfigError

GENERAL = "Summarize the important information in the text above: key facts, names, numbers and events."

CATALYSTS = {
    "general": GENERAL,  # CaP-G
    "general-1": "In summary, the most important points and details of the text so far are the following:",
    "general-2": "Write down everything essential from the passage above so that it can be recalled later.",
    "padding": ". . . . . . . . . . . . . . . .",  # CaP-P
    "unrelated": "Write a cheerful recipe for a chocolate cake with strawberries and cream.",  # CaP-U
}
# CaP-Q incorporates the question into the general prompt. The question alone, above all one that ends in the
# beginning of its answer, keeps too narrow a choice: docs/adr/0006.
QUESTION = "question"
WITH_QUESTION = "Summarize the important information in the text above. {question}"
SHORT = {
    "G": "general",
    "G1": "general-1",
    "G2": "general-2",
    "Q": QUESTION,
    "P": "padding",
    "U": "unrelated",
}


def catalyst_text(name: str, question: str | None = None) -> str:
    """Return the text of a named catalyst, of the question, or the user's own text.

    One word is taken for a name, so that a misspelt one is noticed; a text of
    one's own has at least two words.
    """
    name = SHORT.get(name, name)
    if name in CATALYSTS:
        return CATALYSTS[name]
    if name == QUESTION:
        if question is None:
            raise ConfigError(
                "catalyst 'question' needs the question before reading starts: use 'general' instead"
            )
        return WITH_QUESTION.replace("{question}", question)
    if len(name.split()) > 1:
        return name
    names = [*CATALYSTS, QUESTION]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"use {', '.join(names)}"
    raise ConfigError(f"unknown catalyst '{name}'; {hint} (a text of your own has at least two words)")
