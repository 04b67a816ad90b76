"""Fixtures of the tests on the tables of torch's wheel."""

import pytest
from outcomes import Record


@pytest.fixture
def record(record_property):
    """Collect the outcomes of a test, and hand them to the runner if the test ends without an error."""
    outcomes = Record(record_property)
    yield outcomes
    outcomes.close()
