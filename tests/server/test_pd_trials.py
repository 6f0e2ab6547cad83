"""Which decode servers a prefill server has been tried with."""

from __future__ import annotations

import threading

from tests.loopback import eventually
from tests.server.pd_fakes import FakeServer, stack


def test_a_decode_server_that_comes_during_a_trial_is_compared_and_tried_too():
    prefill, decode = FakeServer("prefill"), FakeServer("decode")
    late, alike = FakeServer("decode", version="0.31.0"), FakeServer("decode")
    for other in (late, alike):
        prefill.trial = threading.Event()
        other.is_dead = True
        prefill.warmed.clear()
        with stack([prefill], [decode, other], wait=False) as app:
            (source, _, joined) = app.app.fleet.all()
            assert eventually(lambda: any("kv_transfer_params" in b for b in prefill.warmed))
            other.is_dead = False
            assert eventually(lambda joined=joined: joined.is_fit)
            prefill.trial.set()
            if other is late:
                assert eventually(lambda source=source: source.problem == "differs in version")
            else:
                assert eventually(lambda source=source: source.is_fit)
                assert any("kv_transfer_params" in body for body in alike.warmed)
