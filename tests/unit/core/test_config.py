import pytest

from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError


def test_keep_defaults_to_half() -> None:
    assert PotConfig(capacity=2048).kept == 1024
    assert PotConfig(capacity=2048, keep=700).kept == 700


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"capacity": 0}, "`capacity` is 0"),
        ({"capacity": 64, "keep": 64}, "`keep` is 64: use 1 to 63"),
        ({"capacity": 64, "keep": 0}, "`keep` is 0"),
        ({"capacity": 64, "opening": 33}, "`opening` is 33"),
    ],
)
def test_impossible_sizes_are_refused_in_one_line(bad: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        PotConfig(**bad)
    assert "\n" not in str(caught.value)


def test_a_pot_too_small_for_its_catalyst_names_a_size_that_works() -> None:
    with pytest.raises(ConfigError, match=r"`keep` 23 or less \(`step` 41 or more\)"):
        PotConfig(capacity=64, keep=32).chunk(catalyst=40)
    assert PotConfig(capacity=64, keep=23).chunk(catalyst=40) == 1
    with pytest.raises(ConfigError, match="`capacity` 82 or more"):
        PotConfig(capacity=64).chunk(catalyst=40)
    assert PotConfig(capacity=82).chunk(catalyst=40) == 1
