"""API keys: which keys may call, how much, with which priority, which cached prompts they hit, and what clients learn of the inside."""
import hashlib
import random
import re
import subprocess
import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from client import pb, pb_grpc, reason_of, request
from fake_worker import wp, wp_grpc
from harness import BUILD, SHAKESPEARE, failpoint, wait_until
from keys import Keyed, command, grow, new_key
from wire import END_HEADERS, HEADERS, Wire, call_headers, frame

SHORT = dict(max_tokens=4, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def keys_of_file(tmp_path_factory):
    return tmp_path_factory.mktemp("keys") / "keys"


@pytest.fixture
def doors(tmp_path, start_cluster, shared_cluster, keys_of_file):
    """make({"a": {flags}, ...}): a cluster that knows these keys, and a client of each. The tests of this file share one, whose file of keys
    grows; alone: it is this test's own."""
    clients = []

    def make(keys, alone=False):
        path = tmp_path / "keys" if alone else keys_of_file
        made = grow(path, keys)
        cluster = (start_cluster if alone else shared_cluster)(flags=["--api-keys", path, "--log-level", "debug"])
        cluster.keys, cluster.keys_path = made, path
        clients.extend(Keyed(cluster.grpc, key).wait_known() for key in made.values())
        return cluster, *clients[-len(keys):]

    yield make
    for client in clients:
        client.close()


def fails(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_every_public_method_needs_a_key_but_health_and_reflection(doors):
    cluster, ours = doors({"ours": {}})
    calls = {"Generate": lambda stub, **more: list(stub.Generate(request("To be"), **more)),
             "GenerateOnce": lambda stub, **more: stub.GenerateOnce(request("To be"), **more),
             "Tokenize": lambda stub, **more: stub.Tokenize(pb.TokenizeRequest(text="x"), **more),
             "Detokenize": lambda stub, **more: stub.Detokenize(pb.DetokenizeRequest(ids=[1]), **more),
             "ListModels": lambda stub, **more: stub.ListModels(pb.ListModelsRequest(), **more)}
    assert set(calls) == {method.name for method in pb.DESCRIPTOR.services_by_name["Baton"].methods}
    for name, call in calls.items():
        for metadata in (None, (("authorization", "Bearer wrong"),), (("authorization", cluster.keys["ours"]),), (("authorization", "Bearer " + cluster.keys["ours"][:-1]),),
                         (("authorization", "Bearer " + "x" * 4000),)):
            error = fails(lambda: call(ours.stub, metadata=metadata, timeout=20))
            assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAUTHENTICATED, "invalid_api_key"), name
        call(ours.stub, metadata=ours.metadata, timeout=60)
        wire = Wire(cluster.grpc)  # the refusal comes at the head: its client sends no message
        wire.send(frame(HEADERS, END_HEADERS, 1, call_headers("/baton.v1.Baton/" + name, ("authorization", "Bearer wrong"))))
        assert wire.outcome().startswith("16 invalid_api_key "), name
        wire.close()
    # The links between the processes are the cluster's own, too.
    assert "TLS between these processes, with certificates of this run" in (cluster.folder / "up.log").read_text()
    private = cluster.folder / "baton" / f"{cluster.up.pid}.tls"
    assert private.stat().st_mode & 0o777 == 0o700 and {path.name: path.stat().st_mode & 0o777 for path in private.iterdir()} == dict.fromkeys(("ca.pem", "cert.pem", "key.pem"), 0o600)
    registry = re.search(r"registry=(\S+) .*internal_tls=1", (cluster.folder / "logs/router.log").read_text())[1]
    for address in (registry, cluster.processes["prefill-0"]["address"], cluster.processes["decode-0"]["address"]):
        with grpc.insecure_channel(address) as stranger:  # not even its health
            assert fails(lambda: health_pb2_grpc.HealthStub(stranger).Check(health_pb2.HealthCheckRequest(), timeout=5)).code() == grpc.StatusCode.UNAVAILABLE
            assert fails(lambda: wp_grpc.RegistryStub(stranger).RegisterWorker(wp.RegisterRequest(), timeout=5)).code() == grpc.StatusCode.UNAVAILABLE
    assert fails(lambda: wp_grpc.RegistryStub(ours.channel).RegisterWorker(wp.RegisterRequest(), timeout=20)).code() == grpc.StatusCode.UNIMPLEMENTED
    assert health_pb2_grpc.HealthStub(ours.channel).Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
    listed = next(reflection_pb2_grpc.ServerReflectionStub(ours.channel).ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=20))
    assert [service.name for service in listed.list_services_response.service if "worker" in service.name] == []


def test_keys_are_in_no_log(doors):
    cluster, ours = doors({"ours": {}}, alone=True)
    ours.generate("To be", **SHORT)
    fails(lambda: list(Keyed(cluster.grpc, "a-secret-of-somebody").start("x")))
    text = cluster.logs(limit=10 ** 7)
    assert cluster.keys["ours"] not in text and "a-secret-of-somebody" not in text
    assert "the file of clients' keys can be read or written by other users" in text and 'mode=0644' in text
    cluster.stop()
    assert not list((cluster.folder / "baton").glob("*.tls"))  # the run's certificates end with it


def test_generate_with_a_key(doors, tmp_path):
    cluster, _ = doors({"ours": {}})
    failed = cluster.command("generate", "To be")
    assert failed.returncode == 1 and "UNAUTHENTICATED (invalid_api_key)" in failed.stderr and failed.stderr.endswith(" (--api-key-file FILE)\n"), failed.stderr
    key = tmp_path / "key"
    key.write_text(cluster.keys["ours"] + "\n")
    assert cluster.generate("To be", max_tokens=4, api_key_file=key)["text"]
    key.write_text("x" * 513)
    failed = cluster.command("generate", "--api-key-file", key, "To be")
    assert failed.returncode == 1 and "holds over 512 bytes" in failed.stderr
    key.write_text("key  one\nline id=one\n")  # output of `baton key new`
    failed = cluster.command("generate", "--api-key-file", key, "To be")
    assert failed.returncode == 2 and "holds several lines, but a key is one" in failed.stderr


def test_a_file_that_changes(doors):
    cluster, ours = doors({"ours": {}}, alone=True)
    ours.generate("To be", **SHORT)
    log = cluster.folder / "logs/router.log"
    cluster.keys_path.write_text("id=a sha256=short tenant=b\n")
    wait_until("it is said", lambda: "line 1: sha256= must be 64 hex digits" in log.read_text(), 20)
    ours.generate("To be", **SHORT)
    key, line = new_key("theirs")
    cluster.keys_path.write_text(line + "\n")
    theirs = Keyed(cluster.grpc, key)
    theirs.wait_known().generate("To be", **SHORT)
    assert not ours.is_known()
    theirs.close()


def test_requests_of_a_minute(doors):
    """The fourth of three is refused, and says when to come again; another tenant doesn't notice."""
    _, few, many = doors({"few": {"requests_per_minute": 3}, "many": {}})
    for _ in range(3):
        few.generate("To be", **SHORT)
        few.stub.ListModels(pb.ListModelsRequest(), timeout=60, metadata=few.metadata)  # doesn't count
    error = fails(lambda: list(few.start("To be")))
    assert (error.code(), reason_of(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limited")
    assert 1 <= int(dict(error.trailing_metadata())["retry-after"]) <= 20 and "3 requests a minute" in error.details()
    many.generate("To be", **SHORT)


def test_tokens_of_a_minute(doors):
    """Reserved are prompt and max_tokens; what was not used is given back at the end."""
    cluster, ours = doors({"ours": {"tokens_per_minute": 300}})
    prompt = list(range(10, 60))
    error = fails(lambda: list(ours.start(prompt, max_tokens=251)))
    assert (error.code(), reason_of(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota")
    assert "retry-after" not in dict(error.trailing_metadata()) and "300 tokens a minute" in error.details()
    stop = ours.generate(prompt, max_tokens=3, temperature=0, ignore_eos=True).ids[0]
    # Three of 110 fit only because each ends at its first token: 50 + 1 are used of each.
    for _ in range(3):
        assert len(ours.generate(prompt, max_tokens=60, temperature=0, stop_ids=[stop]).ids) == 1
    error = fails(lambda: list(ours.start(prompt, max_tokens=200)))
    assert reason_of(error) == "rate_limited" and 1 <= int(dict(error.trailing_metadata())["retry-after"]) <= 60


def test_requests_at_once(doors):
    _, ours, other = doors({"ours": {"running": 2}, "other": {}})
    error = fails(lambda: list(ours.start("To be", n=3, **SHORT)))
    assert reason_of(error) == "quota" and "more choices than the 2" in error.details() and "retry-after" not in dict(error.trailing_metadata())
    both = ours.start("To be", n=2, max_tokens=2000, ignore_eos=True, temperature=1)
    next(both)
    error = fails(lambda: list(ours.start("To be", **SHORT)))
    assert reason_of(error) == "rate_limited" and int(dict(error.trailing_metadata())["retry-after"]) >= 1
    both.cancel()

    def all_free():
        try:
            list(ours.start("To be", n=2, **SHORT))
            return True
        except grpc.RpcError as error:
            assert reason_of(error) == "rate_limited"
            return False
    wait_until("both places are free", all_free, 20)
    running = [ours.start("To be", max_tokens=2000, ignore_eos=True, temperature=1) for _ in range(2)]
    for call in running:
        next(call)
    error = fails(lambda: list(ours.start("To be", **SHORT)))
    assert reason_of(error) == "rate_limited" and "2 requests running at once" in error.details()
    other.generate("To be", **SHORT)
    running[0].cancel()

    def again():
        try:
            ours.generate("To be", **SHORT)
            return True
        except grpc.RpcError as error:
            assert reason_of(error) == "rate_limited"
            return False
    wait_until("its place is free", again, 20)
    running[1].cancel()


def test_one_after_the_other_is_never_more_than_one(doors):
    """The end gives the place back before its client can know of it."""
    _, ours = doors({"ours": {"running": 1}})
    for _ in range(30):
        ours.generate("To be", **SHORT)


def test_priorities(doors):
    _, ours, chosen = doors({"ours": {}, "chosen": {"priorities": "high,normal"}})
    error = fails(lambda: list(ours.start("To be", priority=pb.PRIORITY_HIGH)))
    assert (error.code(), reason_of(error)) == (grpc.StatusCode.PERMISSION_DENIED, "priority_not_allowed")
    ours.generate("To be", priority=pb.PRIORITY_OFFLINE, **SHORT)
    chosen.generate("To be", priority=pb.PRIORITY_HIGH, **SHORT)
    assert reason_of(fails(lambda: list(chosen.start("To be", priority=pb.PRIORITY_OFFLINE)))) == "priority_not_allowed"


def test_a_tenant_hits_its_own_prompts_only(doors):
    """Keys of one tenant share what is cached; another tenant's prompt is computed anew, and its bytes are the same."""
    cluster, first, second, other = doors({"first": {"tenant": "acme"}, "second": {"tenant": "acme"}, "other": {"tenant": "other"}})
    prompt = [random.Random(3).randrange(10, 60) for _ in range(256)]

    def hits():
        return sum(cluster.total(name, "baton_prefix_cache_hits_total") for name in ("prefill-0", "decode-0"))

    def ask(client):
        before = hits()
        ids = client.generate(prompt, seed=4, temperature=1, max_tokens=12, ignore_eos=True).ids
        return ids, hits() - before
    ids, gained = ask(first)
    assert gained == 0
    again, gained = ask(first)
    assert again == ids and gained > 0
    shared, gained = ask(second)
    assert shared == ids and gained > 0
    apart, gained = ask(other)
    assert apart == ids and gained == 0
    apart, gained = ask(other)
    assert apart == ids and gained > 0


def test_a_flood_of_one_tenant_leaves_the_others_their_answers(doors):
    cluster, flood, calm = doors({"flood": {"requests_per_minute": 5, "running": 2}, "calm": {}})
    stop, refusals = threading.Event(), []
    counted = lambda: cluster.total("router", "baton_router_requests_total", status="rate_limited")  # noqa: E731
    before = counted()

    def pour():
        while not stop.is_set():
            try:
                list(flood.start("To be", **SHORT))
            except grpc.RpcError as error:
                refusals.append(reason_of(error))
    threads = [threading.Thread(target=pour) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        answers = [calm.generate("To be", **SHORT).ids for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert all(ids == answers[0] for ids in answers)
    assert len(refusals) > 50 and set(refusals) == {"rate_limited"}
    assert counted() - before == len(refusals)


def test_a_file_that_cannot_be_used_is_no_start(tmp_path):
    path = tmp_path / "keys"
    path.write_text("id=a sha256=0 tenant=b\n")
    done = subprocess.run([BUILD / "bin/baton-router", "--model", SHAKESPEARE, "--api-keys", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "--api-keys" in done.stderr and "line 1: sha256= must be 64 hex digits" in done.stderr


def test_keys_are_made_of_256_random_bits():
    keys = {new_key("k") for _ in range(5)}
    assert len(keys) == 5 and all(re.fullmatch(r"baton_[0-9a-f]{64}", key) for key, _ in keys)
    for key, line in keys:
        assert f"sha256={hashlib.sha256(key.encode()).hexdigest()} " in line and key not in line
    for wrong in (["--id", "a/b"], ["--id", "a", "--tenant", "x y"], ["--id", "a", "--priorities", "urgent"], ["--id", "a", "--priorities", "normal,normal"],
                  ["--id", "a", "--priorities", "normal,"], ["--id", ""], []):
        done = command("key", "new", *wrong)
        assert done.returncode == 2 and not done.stdout, wrong


def test_errors_tell_nothing_of_the_inside(start_cluster, connect):
    """No address, path, pointer, file or process of the cluster in any sentence that a client is told: of requests that are wrong, and of
    workers that fail and are gone."""
    cluster = start_cluster(process_environment={"decode-0": failpoint("step.fails", "fail")}, settings={"retries": 0})
    client = connect(cluster)
    sentences = []
    for prompt, options in (([1] * 60000, {}), ([10 ** 6], {}), ("x" * (5 << 20), {}), ("x", dict(max_tokens=10 ** 6)), ("x", dict(top_p=7)),
                            ("x", dict(stop=["y" * 300])), ("To be", SHORT)):
        sentences.append(fails(lambda: list(client.start(prompt, **options))).details())
    assert "could not compute a step" in sentences[-1]
    cluster.kill("decode-0")  # and not the other one: a cluster without workers ends, and its router with it
    sentences.append(fails(lambda: list(client.start("To be", **SHORT))).details())
    inside = re.compile(r"127\.0\.0\.1|/(tmp|work|home|usr|root)\b|0x[0-9a-f]{6,}|\.[ch]:\d|\bpid\b|prefill-0|decode-0")
    assert all(sentences) and not [s for s in sentences if inside.search(s)], sentences
