"""Catalyst prompts (paper, section 3.3.1 and Table 2): named texts, or any text of the user's own.

The paper prints no wordings; these follow its description. `padding` and `unrelated` are its controls.
"""

from infinipot.common.suggest import hint
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
SHORT = {"G": "general", "G1": "general-1", "G2": "general-2", "P": "padding", "U": "unrelated"}
SHORT["Q"] = QUESTION


def asks(name: str) -> bool:
    """Say whether a catalyst is the question itself, known before reading."""
    return SHORT.get(name, name) == QUESTION


def catalyst_text(name: str, question: str | None = None) -> str:
    """Return the text of a named catalyst, of the question, or the user's own text, of two words or more."""
    name = SHORT.get(name, name)
    if name in CATALYSTS:
        return CATALYSTS[name]
    if asks(name):
        if question is None:
            problem = "catalyst 'question' needs the question before reading starts"
            raise ConfigError(problem, field="catalyst", remedy="use 'general' instead")
        return WITH_QUESTION.replace("{question}", question)
    if len(name.split()) > 1:
        return name
    remedy = f"{hint(name, [*CATALYSTS, QUESTION])} (a text of your own has at least two words)"
    raise ConfigError(f"unknown catalyst '{name}'", field="catalyst", remedy=remedy)
