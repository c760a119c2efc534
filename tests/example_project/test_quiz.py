"""The quiz on capitals: questions, choices and scores."""

from example_project.atlas import quiz
from example_project.atlas.models import Country


def riddles(seed, count=5):
    return list(quiz.riddles(Country.objects.all(), seed, count))


def test_same_seed_gives_the_same_quiz(atlas):
    assert [str(one) for one in riddles(1)] == [str(one) for one in riddles(1)]
    assert riddles(1)[0].choices.choices == riddles(1)[0].choices.choices
    assert [str(one) for one in riddles(1)] != [str(one) for one in riddles(2)]


def test_question_has_one_right_answer_of_four(atlas):
    for riddle in riddles(3, 50):
        assert riddle.country in riddle.options
        capitals = [one.capital for one in riddle.options]
        assert len(capitals) == 4
        assert capitals.count(riddle.country.capital) == 1


def test_capital_of_two_countries_is_one_choice(atlas):
    shared = {"RS", "CS", "JM", "NF"}
    countries = Country.objects.filter(pk__in=shared | {"FR", "DE", "IT"})
    for seed in range(20):
        for riddle in quiz.riddles(countries, seed, 7):
            assert len({one.capital for one in riddle.options}) == 4


def test_number_of_questions_is_limited_by_the_countries(atlas):
    antarctic = Country.objects.filter(pk__in=["FR", "DE"])
    assert len(list(quiz.riddles(antarctic, 1, 10))) == 2


def test_country_named_like_its_capital_is_not_asked(atlas):
    names = {riddle.country.name for riddle in riddles(1, 300)}
    assert "Italy" in names
    assert "Singapore" not in names


def test_score_counts_right_answers(atlas):
    riddle = riddles(1)[0]
    wrong = next(one.pk for one in riddle.options if one != riddle.country)
    solved = [quiz.Solved(riddle, riddle.country.pk), quiz.Solved(riddle, wrong)]
    score = quiz.scored(solved)
    assert (score.right, score.of) == (1, 2)
    assert score.answers[0].endswith("right.")
    assert riddle.country.capital in score.answers[1]
