"""Fixtures: `start_cluster(...)` starts clusters that are ended and checked after the test, `connect(cluster)` a client."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import Cluster  # noqa: E402


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call" and report.failed:
        for cluster in getattr(item, "clusters", []):
            report.sections.append(("cluster logs", cluster.logs()))


def pytest_terminal_summary(terminalreporter, config):
    """What a file of tests has to show."""
    for line in getattr(config, "table", []):
        terminalreporter.write_line(line)


@pytest.fixture
def start_cluster(request, tmp_path_factory):
    clusters = request.node.clusters = []

    def start(**options):
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), wait=False, **options)
        clusters.append(cluster)
        cluster.wait_ready()
        return cluster

    yield start
    errors = []
    for cluster in clusters:
        try:
            cluster.stop()
        except AssertionError as error:
            errors.append(str(error))
    assert not errors, "\n".join(errors)


@pytest.fixture
def connect():
    from client import Client
    clients = []

    def open_client(cluster):
        clients.append(Client(cluster.grpc))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()
