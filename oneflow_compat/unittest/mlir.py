"""MLIRTestCase."""

from .cases import TestCase


class MLIRTestCase(TestCase):
    """A TestCase for programs OneFlow compiles through MLIR; nn.Graph compiles every program here, so nothing
    is switched on.
    """

    def setUp(self):
        pass

    def tearDown(self):
        pass
