"""What a problem is one of."""

from dataclasses import dataclass

import pytest

from pipeline.common.subject import subject_of


@dataclass
class Problem:
    cluster: str = "east"
    group_id: str | None = None
    client_id: str | None = None
    topic: str | None = None


@pytest.mark.parametrize(
    ("problem", "words", "with_cluster"),
    [
        (Problem(group_id="g", client_id="c", topic="t"), "group g", "group g, cluster east"),
        (Problem(client_id="c", topic="t"), "client c", "client c, cluster east"),
        (Problem(topic="t"), "topic t", "topic t, cluster east"),
        (Problem(), "cluster east", "cluster east"),
        (Problem(group_id="", topic="t"), 'group ""', 'group "", cluster east'),
    ],
)
def test_a_problem_is_one_of_its_group_else_its_client_else_its_topic_else_its_cluster(
    problem: Problem, words: str, with_cluster: str
) -> None:
    subject = subject_of(problem)
    assert str(subject) == words
    assert subject.with_cluster == with_cluster
