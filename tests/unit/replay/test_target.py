"""An embedded engine's options: what the command line says, what the header says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.replay.target import Embedded
from tenuto_vllm.embedded import __main__ as command
from tenuto_vllm.embedded.latency import Latency


def test_options_behind_the_word_change_one_engine() -> None:
    engine = Embedded(placement="tenuto").with_options("ranks=3, retention=slru,extension")
    assert engine == Embedded(ranks=3, placement="tenuto", retention="slru", extension=True)
    assert engine.with_options("extension=no") == Embedded(
        ranks=3, placement="tenuto", retention="slru"
    )


@pytest.mark.parametrize(
    "text", ["ranks=many", "speed=1", "placement", "extension=perhaps", "ranks=0"]
)
def test_an_option_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"option|extension|least"):
        Embedded().with_options(text)


def test_the_engine_knows_every_argument(tmp_path: Path) -> None:
    Latency(overhead_s=0.5).to_file(tmp_path / "l.json")
    engine = Embedded(3, 70, 8, "round-robin", "slru", True, str(tmp_path / "l.json"), 900)
    given = command._parser().parse_args(engine.arguments())
    assert (given.ranks, given.blocks, given.block_size, given.max_model_len) == (3, 70, 8, 900)
    assert given.exit_with_stdin
    assert (given.placement, given.retention, len(given.middleware)) == ("round-robin", "slru", 1)
    said = engine.settings()
    assert (said["tokens_per_rank"], said["latency"]["overhead_s"]) == (552, 0.5)


def test_a_cache_that_no_memory_holds_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--port", "0", "--blocks", str(10**14)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("no memory for a cache of 100,000,000,000,000 blocks")
    assert told.count("\n") == 1
