"""The conformance kit: what any agent program sends, held against docs/protocol.md.

report = tenuto.conformance.run("python my_agent.py")

It needs `pip install 'tenuto[tools]'`. The command is `tenuto conformance`.
"""

from __future__ import annotations

from tenuto.conformance.captured import Request
from tenuto.conformance.kit import Recording, recording, run
from tenuto.conformance.report import Ran, Report, Result
from tenuto.conformance.verdicts import Proof

__all__ = ["Proof", "Ran", "Recording", "Report", "Request", "Result", "recording", "run"]
