"""Compare a compiled region with the captured operators before a call gets its results.

`proved(function, Subject(...))` returns the function that calls may use. The comparison runs both on the same
inputs and random numbers (proof.py), lets rounding explain a distance or not (verdict.py), names the operator
that is wrong (first_difference.py), and is kept on disk (records.py).
"""

from .proof import Difference, Proof, compared
from .proving import FIRST, NEVER, Proved, Subject, Verify, proof_of_call, proved, refusal
from .runs import Reference

__all__ = [
    "FIRST",
    "NEVER",
    "Difference",
    "Proof",
    "Proved",
    "Reference",
    "Subject",
    "Verify",
    "compared",
    "proof_of_call",
    "proved",
    "refusal",
]
