"""The openai package where things go wrong: its error classes, what it sends again, its timeouts, and clients that go while they stream or wait."""
import asyncio
import re
import time
import urllib.request

import front
import openai
import pytest
from bare import Bare
from harness import wait_until

MODEL = "tiny-shakespeare"
LONG = {"model": MODEL, "prompt": "ROMEO:", "max_tokens": 1900, "extra_body": {"ignore_eos": True}}
GONE_WITHIN = 20  # seconds; that they compute no more tells that they were cancelled


def package(address, kind=openai.OpenAI, **more):
    return kind(base_url=f"http://{address}/v1", api_key="none", **{"max_retries": 0, **more})


def at_work(cluster):
    """The held blocks and running requests of the workers, by their own metrics."""
    told = {}
    for name in ("prefill-0", "decode-0"):
        figures = cluster.metrics(name)
        blocks = cluster.blocks(name)
        told[name] = blocks["used"] + blocks["pinned"] + blocks["landing"] + int(figures["baton_num_requests_running"] + figures["baton_num_requests_waiting"])
    return told


def computed(cluster):
    """Tokens of this test."""
    return cluster.total("decode-0", "baton_decode_tokens_computed_total") - getattr(cluster, "computed_before", 0)


def cancelled(cluster):
    return cluster.total("router", "baton_router_requests_total", status="cancelled")


def wait_decoding(cluster):
    wait_until("it is decoded", lambda: computed(cluster) > 10 and at_work(cluster)["decode-0"], 20)


def wait_gone(cluster, n=1):
    """Both workers hold nothing soon, and compute nothing from then on."""
    wait_until("the workers have let go of it", lambda: not any(at_work(cluster).values()), GONE_WITHIN)
    tokens = computed(cluster)
    assert tokens < 1800 * n, "it was cancelled, not finished"
    assert cluster.command("generate", "--max-tokens", 1, "ROMEO:").returncode == 0
    assert computed(cluster) <= tokens + 1


@pytest.fixture
def cluster(shared_cluster):
    cluster = shared_cluster(settings=front.SETTINGS)
    cluster.computed_before = 0
    cluster.computed_before = computed(cluster)
    return cluster


@pytest.mark.parametrize("n", [1, 4])
def test_a_client_that_goes_while_it_streams(cluster, n):
    before = cancelled(cluster)
    stream = package(front.address(cluster)).completions.create(**LONG, n=n, stream=True)
    next(iter(stream))
    wait_decoding(cluster)
    stream.close()
    wait_gone(cluster, n)
    assert cancelled(cluster) == before + 1


def test_a_client_that_goes_while_it_waits_for_a_whole_answer(cluster):
    """Its own timeout: the package gives up, and the connection ends."""
    with pytest.raises(openai.APITimeoutError):
        package(front.address(cluster), timeout=0.7).completions.create(**LONG, n=8)
    wait_gone(cluster, 8)


def test_a_task_that_is_cancelled(cluster):
    async def run():
        async with package(front.address(cluster), openai.AsyncOpenAI) as client:
            task = asyncio.create_task(client.completions.create(**LONG, n=4))
            await asyncio.to_thread(wait_decoding, cluster)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    asyncio.run(run())
    wait_gone(cluster, 4)


def test_a_client_that_goes_while_it_is_queued(start_cluster):
    """A worker holds one request: the second waits at the router, and the workers never hear of it."""
    cluster = start_cluster(settings={**front.SETTINGS, "max-sequences": 1})
    client = package(front.address(cluster))
    first = client.completions.create(**LONG, stream=True)
    next(iter(first))
    wait_decoding(cluster)

    def queued():
        return cluster.total("router", "baton_router_requests", state="queued")
    with pytest.raises(openai.APITimeoutError):
        package(front.address(cluster), timeout=2).completions.create(model=MODEL, prompt=["JULIET:", "NURSE:"], max_tokens=50)
    wait_until("it is forgotten", lambda: queued() == 0, GONE_WITHIN)
    assert cancelled(cluster) == 2
    prompts = cluster.total("prefill-0", "baton_prompt_tokens_computed_total")
    first.close()
    wait_gone(cluster)
    assert prompts == 2, "the first one's prompt, and no other"


def test_what_helps_to_be_sent_again_is_and_nothing_else_is():
    """The package looks at status, retry-after and x-should-retry: the router counts how often it comes."""
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", "--worker-wait", "20ms")
    try:
        client = package(router.front, max_retries=2)

        def ended(status):
            with urllib.request.urlopen(f"http://{router.http}/metrics", timeout=20) as answer:
                return sum(map(int, re.findall(rf'^baton_router_requests_total{{[^}}]*status="{status}"}} (\d+)', answer.read().decode(), re.M)))
        begin = time.monotonic()
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model=MODEL, prompt="a")
        assert caught.value.status_code == 503 and caught.value.code == "no_workers" and caught.value.type == "service_unavailable"
        assert ended("no_workers") == 3 and time.monotonic() - begin > 1.5, "it waited as retry-after says"
        for asked, kind, code in (({"temperature": -1}, openai.BadRequestError, "invalid_sampling"),
                                  ({"model": "gpt-4"}, openai.NotFoundError, "model_not_found"),
                                  ({"max_tokens": 10**6}, openai.BadRequestError, "context_length_exceeded")):
            before = ended(code)
            with pytest.raises(kind) as caught:
                client.completions.create(**{"model": MODEL, "prompt": "a", **asked})
            assert caught.value.code == code and caught.value.request_id and ended(code) == before + 1
        with pytest.raises(openai.APIStatusError) as caught:
            client.completions.create(model=MODEL, prompt="a" * (5 << 20))
        assert caught.value.status_code == 413 and caught.value.code == "text_too_long"
        with pytest.raises(openai.APIStatusError) as caught:
            client.completions.create(model=MODEL, prompt="a" * (10 << 20))
        assert caught.value.status_code == 413 and caught.value.code == "body_too_large"
    finally:
        assert not router.stop()
    with pytest.raises(openai.APIConnectionError):
        package(router.front).models.list()


def test_an_error_within_a_stream_is_raised(start_cluster):
    """By a cluster that doesn't know yet how long its steps take, and begins."""
    cluster = start_cluster(settings=front.SETTINGS)
    stream = package(front.address(cluster)).completions.create(**LONG, n=16, stream=True, extra_headers={"x-request-timeout-ms": "800"})
    with pytest.raises(openai.APIError) as caught:
        for chunk in stream:
            assert chunk.choices
    assert caught.value.code == "deadline" and not isinstance(caught.value, openai.APIStatusError)
