"""The words of one-sentence errors."""

from dcp.errors import one_line, printable, shown, unknown


def test_an_unknown_name_is_shown_with_all_choices_and_the_nearest():
    assert unknown("kind_of_score", "cosin", ["cosine", "energy"]) == (
        "unknown kind of score 'cosin': choose one of cosine, energy, perhaps 'cosine'"
    )
    assert unknown("score", "zzz", ["cosine"]) == "unknown score 'zzz': choose one of cosine"


def test_a_value_of_any_kind_and_size_is_one_short_line():
    class Broken:
        def __repr__(self) -> str:
            raise ValueError

    assert shown("a\nb") == "'a\\nb'" and shown(Broken()) == "this Broken" and shown(10**5000) == "this int"
    assert len(shown("x" * 1000)) == 73 and "..." in shown("x" * 1000)


def test_an_error_is_one_line_and_without_a_message_its_kind():
    assert one_line(ValueError("two\n  lines")) == "two lines" and one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("x" * 1000))) == 203


def test_control_characters_are_written_out_and_letters_of_every_language_are_not():
    assert printable("a\x1b[2J\x07\x9b\u202e") == r"a\x1b[2J\x07\x9b\u202e"
    assert printable("Zürich, 東京: 5 μs\n") == "Zürich, 東京: 5 μs\n"
