import pytest

from infinipot.errors import ConfigError
from infinipot.reading.catalyst import CATALYSTS, SHORT, catalyst_text


def test_names_the_papers_letters_and_own_texts() -> None:
    assert len(set(CATALYSTS.values())) == 5
    assert catalyst_text("general") == catalyst_text("G")
    texts = {catalyst_text(letter, "why {?}") for letter in SHORT}
    (own,) = texts - set(CATALYSTS.values())
    assert own.endswith("why {?}")
    assert catalyst_text("List every name.") == "List every name."


def test_a_misspelt_name_is_not_taken_for_a_text() -> None:
    with pytest.raises(ConfigError, match="did you mean 'general'"):
        catalyst_text("genral")
    with pytest.raises(ConfigError, match="needs the question"):
        catalyst_text("question")
