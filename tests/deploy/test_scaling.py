"""KEDA is told what it reads, and asks for numbers that the application renders."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tenuto_vllm.pd.fleet import Fleet
from tenuto_vllm.pd.numbers import Numbers
from tenuto_vllm.pd.options import Options
from tenuto_vllm.retention.waits import MOST_LEASE_S
from tests.deploy.started import ran, valued
from tests.deploy.test_files import ANY, documents, unknown

ROLES = ("prefill", "decode")

# https://github.com/kedacore/keda/blob/8b4f083ca8c8c2baf8477e322bd4d16ac4dfa09a/
# apis/keda/v1alpha1/{scaledobject,scaletriggers}_types.go and pkg/scalers/prometheus_scaler.go;
# the behavior is autoscaling/v2/types.go of kubernetes/api at 10b39a39
RULES = {
    "stabilizationWindowSeconds": None,
    "selectPolicy": None,
    "policies": [{"type": None, "value": None, "periodSeconds": None}],
}
SCALED_OBJECT = {
    **{"apiVersion": None, "kind": None, "metadata": ANY},
    "spec": {
        "scaleTargetRef": {"apiVersion": None, "kind": None, "name": None},
        **{"pollingInterval": None, "minReplicaCount": None, "maxReplicaCount": None},
        "fallback": {"failureThreshold": None, "replicas": None, "behavior": None},
        "advanced": {
            "horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": RULES, "scaleDown": RULES}}
        },
        "triggers": [
            {
                **{"type": None, "name": None, "metricType": None},
                "metadata": {
                    **{"serverAddress": None, "query": None, "threshold": None},
                    **{"activationThreshold": None, "ignoreNullValues": None, "timeout": None},
                },
            }
        ],
    },
}
FALLBACKS = {"static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"}
# https://prometheus.io/docs/prometheus/latest/querying/
PROMQL = {"sum", "avg", "max", "avg_over_time", "or"}


def rendered() -> dict[str, dict[str, set[str]]]:
    """Return the families of the application's `/metrics`, each with its labels' values."""
    fleet = Fleet(Options(["http://p:8000"], ["http://d:8000"]))
    families: dict[str, dict[str, set[str]]] = {}
    for name, labels in re.findall(
        r"^(\w+)(?:\{(.*)\})? \S+$", Numbers(fleet).text(), re.MULTILINE
    ):
        told = families.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            told.setdefault(label, set()).add(value)
    return families


def wrong(query: str) -> list[str]:
    """Return what of a query is not rendered, is no PromQL that is known here, or is unbalanced."""
    families = rendered()
    found: list[str] = []
    selectors = re.findall(r"(\w+)\{([^}]*)\}", query)
    for name, matchers in selectors:
        for matcher in matchers.split(","):
            said = re.fullmatch(r'\s*(\w+)="([^"]*)"\s*', matcher)
            if said is None or said[2] not in families.get(name, {}).get(said[1], ()):
                found.append(f"{name}{{{matcher}}}")
    rest = re.sub(r"\{[^}]*\}|\[\d+[smh]\]", "", query)
    words = re.findall(r"[A-Za-z_]\w*", rest)
    found += [word for word in words if word not in PROMQL and word not in families]
    if depth := re.sub(r"[^()]", "", rest):
        while "()" in depth:
            depth = depth.replace("()", "")
        found += [depth] if depth else []
    found += re.findall(r"[^\w\s()*/>.]", rest)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_keda_asks_for_numbers_of_its_role_that_the_application_renders(role: str) -> None:
    [scaled] = [
        one for one in documents("keda/prefill-decode.yaml") if one["metadata"]["name"] == role
    ]
    [trigger] = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert wrong(query) == []
    assert set(re.findall(r'role="(\w+)"', query)) == {role}
    assert query.count("tenuto_pd_") == query.count("role=")
    assert scaled["spec"]["scaleTargetRef"]["name"] == role


@pytest.mark.parametrize(
    "query",
    [
        'sum(tenuto_pd_queued_tokens{role="prefill"})',
        'sum(tenuto_pd_queued_seconds{role="prefiller"})',
        'sum(tenuto_pd_queued_seconds{node="prefill"})',
        'sum(tenuto_pd_queued_seconds{role="prefill"}',
        'total(tenuto_pd_queued_seconds{role="prefill"})',
        'sum(tenuto_pd_queued_seconds{role="prefill"}) & 1',
    ],
)
def test_a_query_for_what_is_not_rendered_would_be_seen(query: str) -> None:
    assert wrong(query) != []


def test_kedas_objects_have_fields_that_it_reads_and_bounds_that_hold() -> None:
    for scaled in documents("keda/prefill-decode.yaml"):
        assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
        assert unknown(scaled, SCALED_OBJECT) == []
        spec = scaled["spec"]
        [trigger] = spec["triggers"]
        # KEDA's map holds texts, and a number in it is refused.
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        # With `Value` the replicas would multiply what is a sum already.
        assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
        assert float(trigger["metadata"]["threshold"]) > 0
        # Else an application that is gone counts as an idle one, and `fallback` never comes.
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        least, most = spec["minReplicaCount"], spec["maxReplicaCount"]
        assert 1 <= least <= spec["fallback"]["replicas"] <= most
        assert spec["fallback"]["behavior"] in FALLBACKS


def test_no_role_shrinks_before_what_it_holds_has_run_out(tmp_path: Path) -> None:
    given = {"ROLE": "prefill", "MODEL": "m", "ADDRESS": "10.0.0.1"}
    arguments, _ = ran(tmp_path, "vllm/prefill-decode.sh", "vllm", **given)
    config = json.loads(valued(arguments)["--kv-transfer-config"])
    lease_s = config["kv_connector_extra_config"]["kv_lease_duration"]
    holds_s = {"prefill": lease_s, "decode": MOST_LEASE_S}
    for scaled in documents("keda/prefill-decode.yaml"):
        behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        down = behavior["scaleDown"]
        # Kubernetes takes up to an hour, and half of one.
        assert holds_s[scaled["metadata"]["name"]] <= down["stabilizationWindowSeconds"] <= 3600
        assert all(0 < policy["periodSeconds"] <= 1800 for policy in down["policies"])
