"""What both programs are about: the task, what each agent is told, and the workers' tool."""

from __future__ import annotations

TASK = "What do 3 pumps and 2 valves cost, delivered to Bergen?"

PLANNER = """\
You are the planner. You get a question about prices and answer it with the help of workers.

1. Write the steps: one fact to find for each, such as what an article costs and weighs, or what
   delivery to a town costs. Name the page of the catalogue that has it: its one word in quotes.
2. Call the tool `worker` once for each step, all of them in one answer: they work side by side.
3. When all have answered, do the sum and answer the question. Name each fact that you used and
   the year of its price list.
4. When the verifier sends you back, have only that step done again, then do the sum again.
"""

WORKER = """\
You are a worker. You get one step of a plan: a fact to find, and the page that has it.

Call the tool `look_up` with the page, and answer with what it says, word for word, and nothing
else. Do not do sums, do not guess, and do not look up pages that the step does not name.
"""

VERIFIER = """\
You are the verifier. You get a question and an answer to it, and check the answer.

* Every fact must come from the price list of 2026. If one does not, answer `REPAIR:`, what is
  wrong, and where it stands: the page of this year has the year after its name.
* The sum must be right: articles, and delivery by weight. If it is not, answer `REPAIR:` and why.
* If nothing is wrong, answer `ACCEPT`.
"""

MOST_ROUNDS = 3
"""Reviews, after which an answer is given as it is."""

MOST_STEPS = 30
"""Steps of the graph, after which it is given up."""

MOST_TURNS = 5
"""Calls that a worker makes for a step."""

_CATALOGUE = {
    "pump": "Pump, price list of 2026: 90 euros, 12 kg.",
    "valve": "Valve, price list of 2024: 24 euros, 3 kg. There is a page for 2026.",
    "valve 2026": "Valve, price list of 2026: 31 euros, 3 kg.",
    "bergen": "Delivery to Bergen, price list of 2026: 2 euros for each kg.",
}


def page(name: str) -> str:
    """Return a page of the catalogue."""
    pages = ", ".join(_CATALOGUE)
    return _CATALOGUE.get(name.lower().strip(), f"There is no such page; there are {pages}.")


def to_review(answer: str) -> str:
    """Return what the verifier is asked."""
    return f"Question: {TASK}\n\nAnswer: {answer}"


def is_accepted(verdict: str) -> bool:
    """Return whether the verifier lets an answer pass."""
    return "REPAIR" not in verdict
