"""Fixtures: `start_cluster(...)` starts clusters that are ended and checked after the test, `shared_cluster(...)` gives one that the
tests of a file share, `connect(cluster)` opens a client."""
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
            cluster.shared = False  # whatever failed may have left something in it


def pytest_terminal_summary(terminalreporter, config):
    """The fixtures of a file of tests."""
    for line in getattr(config, "table", []):
        terminalreporter.write_line(line)


def note(request, cluster):
    """A failure of this test shows the cluster's logs."""
    request.node.clusters = [*getattr(request.node, "clusters", []), cluster]


def stop_all(clusters):
    errors = []
    for cluster in clusters:
        try:
            cluster.stop()
        except AssertionError as error:
            errors.append(str(error))
    assert not errors, "\n".join(errors)


@pytest.fixture
def start_cluster(request, tmp_path_factory):
    clusters = []

    def start(**options):
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), wait=False, **options)
        clusters.append(cluster)
        note(request, cluster)
        cluster.wait_ready()
        return cluster

    yield start
    stop_all(clusters)


@pytest.fixture(scope="module")
def clusters_of_file():
    clusters = []
    yield clusters
    stop_all(clusters)


@pytest.fixture
def shared_cluster(request, tmp_path_factory, clusters_of_file):
    """A running cluster with these options: tests of this file that ask for equal ones share it. A start costs 0.7 s of CPU. Not for tests
    that break a process, count what a cluster did, or need an idle one."""

    def shared(**options):
        for cluster in clusters_of_file:
            if cluster.shared and cluster.options == options:
                break
        else:
            cluster = Cluster(tmp_path_factory.mktemp("cluster"), wait=False, **options)
            cluster.shared, cluster.options = True, options
            clusters_of_file.append(cluster)
            cluster.wait_ready()
        note(request, cluster)
        return cluster

    return shared


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
