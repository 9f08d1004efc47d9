"""Search: the best passages within a budget, in text order, neighbours joined; none where no word tells."""

from infinipot.recall.archive import Archive
from infinipot.recall.search import fused, joined, search, supported

HAY = [f"Paragraph {number} tells of boats, the sea and the harbour master's day." for number in range(200)]


def archive(**facts: str) -> Archive:
    made = Archive()
    for number, text in enumerate(HAY):
        made.add(facts.get(f"at{number}", text), "book.txt")
    return made


def found(made: Archive, *queries: str, budget: int = 1000) -> list[str]:
    return [passage.text for passage in search(made, queries, budget, lambda text: len(text.split()))]


def test_what_fits_the_budget_in_text_order() -> None:
    made = archive(at150="The zebra Zorro eats hay, says the zebra keeper.", at20="Zebra stripes are black.")
    assert found(made, "Which zebra is called Zorro?", budget=14) == [
        "Zebra stripes are black.",
        "The zebra Zorro eats hay, says the zebra keeper.",
    ]
    assert found(made, "Which zebra is called Zorro?", budget=9) == [
        "The zebra Zorro eats hay, says the zebra keeper."
    ]


def test_the_beginning_of_the_best_where_not_even_that_fits() -> None:
    made = archive(at3="The zebra Zorro eats hay.")
    (text,) = found(made, "zebra", budget=2)
    assert "The zebra Zorro eats hay.".startswith(text)


def test_no_passage_for_words_that_are_everywhere_or_nowhere() -> None:
    made = archive()
    assert found(made, "Who is lactose intolerant?") == []
    assert found(made, "the boats of the sea") == []
    assert found(made, "") == []


def test_words_of_many_passages_find_where_they_are_all_there_is() -> None:
    made = archive(**{f"at{number}": f"Support came on day {number}." for number in range(0, 200, 7)})
    assert found(made, "What support?")[0].startswith("Support came")  # in a seventh of them
    made = archive(**{f"at{number}": f"Support came on day {number}." for number in range(0, 200, 4)})
    assert found(made, "What support?") == []


def test_several_wordings_are_fused() -> None:
    made = archive(at5="Milk makes Ottilie ill.", at9="A cobbler mends shoes.")
    wordings = "Who is lactose intolerant?", "milk dairy", "shoes"
    assert found(made, *wordings) == ["Milk makes Ottilie ill.", "A cobbler mends shoes."]
    assert fused([[1, 2, 3], [3, 4]]) == [3, 1, 2, 4]


def test_neighbours_of_one_source_are_joined() -> None:
    made = Archive()
    made.add("x" * 1300, "a")
    made.add("y", "b")
    one, two, three, other = made.passages([1, 2, 3, 4])
    assert [passage.text for passage in joined([three, one])] == [one.text, three.text]
    (whole, last) = joined([other, two, one, three])
    assert (whole.start, whole.end, whole.text) == (0, 1300, "x" * 1300)
    assert last == other


def test_a_neighbour_that_fits_as_well_lifts_a_passage() -> None:
    weights = {9: 3.0, 4: 2.0, 5: 2.5, 7: 2.0}
    assert supported(weights) == [5, 4, 9, 7]  # 3.5, 3.25, 3, 2
    assert supported({2: 1.0, 1: 1.0}) == [2, 1]
    assert supported({}) == []


def test_a_shorter_passage_takes_the_room_that_a_longer_one_leaves() -> None:
    long = "The zebra Zorro and the zebra Zita " + "run and " * 12
    made = archive(at150="The zebra Zorro eats zebra hay.", at90=long, at20="Zebra stripes are black.")
    assert found(made, "Which zebra is called Zorro?", budget=12) == [
        "Zebra stripes are black.",
        "The zebra Zorro eats zebra hay.",
    ]
