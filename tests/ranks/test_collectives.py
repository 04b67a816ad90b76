"""flow.comm and the cases of global tests with several ranks: collectives.py and drawn.py under the launcher,
on the CPU.
"""

from test_ranks import launch, pytestmark  # noqa: F401


def test_every_collective_on_two_ranks():
    launch(2, program="collectives.py")


def test_global_tests_draw_the_same_on_every_rank():
    launch(2, program="drawn.py")
