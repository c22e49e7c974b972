"""deploy/grafana: promtool takes the rules and every expression of the dashboard; panels don't lie on one another; alerts fire when they should."""
import json
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
GRAFANA = TOP / "deploy/grafana"
DASHBOARD = json.loads((GRAFANA / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def promtool(*arguments, folder=GRAFANA):
    program = shutil.which("promtool")
    assert program, "promtool is missing: deploy/local/install-packages tests"
    return subprocess.run([program, *map(str, arguments)], cwd=folder, text=True, capture_output=True, timeout=60)


def test_rules_and_example():
    done = promtool("check", "config", "prometheus.yml")  # and the rule file that it names
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_every_expression_of_the_dashboard(tmp_path):
    expressions = [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert len(expressions) > 40
    rules = [{"record": f"dashboard:{i}", "expr": text.replace("$__rate_interval", "1m").replace("$job", "baton")} for i, text in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", "rules.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_have_their_own_places():
    taken = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])):
            assert cell not in taken, f"{panel['title']} lies on {taken.get(cell)}"
            taken[cell] = panel["title"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


ALERTS = [
    ("BatonProcessDown", {'up{job="baton", instance="a"}': "0x20"}, "5m"),
    ("BatonWorkersMissing", {'baton_router_workers_known{job="baton", role="decode"}': "2x20", 'baton_router_workers_up{job="baton", role="decode"}': "1x20"}, "5m"),
    ("BatonNoDecodeWorker", {'baton_router_workers_up{job="baton", role="decode"}': "0x20"}, "5m"),
    ("BatonErrors", {'baton_router_requests_total{job="baton", status="ok"}': "0+60x30", 'baton_router_requests_total{job="baton", status="internal"}': "0+6x30"}, "20m"),
    ("BatonOverloaded", {'baton_router_requests_total{job="baton", status="overloaded"}': "0+1x30"}, "20m"),
    ("BatonQueueGrows", {'baton_router_requests{job="baton", state="queued"}': "101x30"}, "20m"),
    ("BatonSlowFirstToken", {'baton_time_to_first_token_seconds_bucket{job="baton", le="5"}': "0x40", 'baton_time_to_first_token_seconds_bucket{job="baton", le="10"}': "0+5x40",
                             'baton_time_to_first_token_seconds_bucket{job="baton", le="+Inf"}': "0+5x40"}, "30m"),
    ("BatonSlowTokens", {'baton_inter_token_latency_seconds_bucket{job="baton", le="0.5"}': "0x40", 'baton_inter_token_latency_seconds_bucket{job="baton", le="1"}': "0+5x40",
                         'baton_inter_token_latency_seconds_bucket{job="baton", le="+Inf"}': "0+5x40"}, "30m"),
    ("BatonErrorBudgetSpent", {'baton_router_slo_error_budget_left{job="baton", slo_class="chat"}': "-0.1x30"}, "20m"),
    ("BatonKvCacheFull", {'baton_kv_cache_usage_perc{job="baton", instance="a"}': "0.97x30", 'baton_num_requests_waiting{job="baton", instance="a"}': "2x30"}, "20m"),
    ("BatonHandoffsFail", {'baton_handoffs_total{job="baton", status="ok"}': "0+10x30", 'baton_handoffs_total{job="baton", status="lost"}': "0+5x30"}, "20m"),
    ("BatonSessionsFlap", {'baton_router_sessions_lost_total{job="baton"}': "0+1x30"}, "20m"),
    ("BatonLogLinesLost", {'baton_log_lines_lost_total{job="baton", instance="a"}': "0+1x30"}, "20m"),
]


def fired(tmp_path, alert, series, at):
    """The output of `promtool test rules` for a test that expects nothing: its failure lists the alerts."""
    test = {"rule_files": [str(GRAFANA / "alerts.yml")], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()],
                       "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": []}]}]}
    (tmp_path / "test.yml").write_text(json.dumps(test))
    done = promtool("test", "rules", "test.yml", folder=tmp_path)
    if done.returncode:
        assert f'alertname="{alert}"' in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode != 0


def test_every_alert_is_played():
    import re
    assert re.findall(r"- alert: (\w+)", (GRAFANA / "alerts.yml").read_text()) == [alert for alert, _, _ in ALERTS]


@pytest.mark.parametrize("alert,series,at", ALERTS, ids=[alert for alert, _, _ in ALERTS])
def test_an_alert_fires(tmp_path, alert, series, at):
    assert fired(tmp_path, alert, series, at)


HEALTHY = {'up{job="baton", instance="a"}': "1x40", 'baton_router_workers_known{job="baton", role="decode"}': "2x40", 'baton_router_workers_up{job="baton", role="decode"}': "2x40",
           'baton_router_requests_total{job="baton", status="ok"}': "0+60x40", 'baton_router_requests_total{job="baton", status="internal"}': "0x40",
           'baton_router_requests_total{job="baton", status="overloaded"}': "0x40", 'baton_router_requests{job="baton", state="queued"}': "3x40",
           'baton_time_to_first_token_seconds_bucket{job="baton", le="0.1"}': "0+60x40", 'baton_time_to_first_token_seconds_bucket{job="baton", le="+Inf"}': "0+60x40",
           'baton_inter_token_latency_seconds_bucket{job="baton", le="0.1"}': "0+60x40", 'baton_inter_token_latency_seconds_bucket{job="baton", le="+Inf"}': "0+60x40",
           'baton_router_slo_error_budget_left{job="baton", slo_class="chat"}': "0x40",
           'baton_kv_cache_usage_perc{job="baton", instance="a"}': "0.99x40", 'baton_num_requests_waiting{job="baton", instance="a"}': "0x40",
           'baton_handoffs_total{job="baton", status="ok"}': "0+60x40", 'baton_handoffs_total{job="baton", status="lost"}': "0x40",
           'baton_router_sessions_lost_total{job="baton"}': "1x40", 'baton_log_lines_lost_total{job="baton", instance="a"}': "0x40"}


def test_nothing_fires_where_all_is_well(tmp_path):
    assert not [alert for alert, _, at in ALERTS if fired(tmp_path, alert, HEALTHY, at)]
