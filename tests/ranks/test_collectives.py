"""flow.comm with several ranks: collectives.py under the launcher, on the CPU."""
from test_ranks import launch, pytestmark  # noqa: F401


def test_every_collective_on_two_ranks():
    launch(2, program="collectives.py")
