"""Requests by seed, calls that are watched while they run, and what a quiet run of the same request answered."""
import dataclasses
import random
import sys
import pathlib
import threading
import time

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from client import Answer, Client, reason_of  # noqa: E402

VOCABULARY = (3, 380)
SHORTEST, LONGEST = 130, 230  # two chunks at least, of any size, and several of most; rope-linear takes 256 tokens


@dataclasses.dataclass(frozen=True)
class Ask:
    prompt: tuple
    options: tuple  # pairs of (name, value)

    def but(self, **options):
        return Ask(self.prompt, tuple(sorted({**dict(self.options), **options}.items())))


def ask_of(seed, which=0, tokens=None, length=None):
    """The `which`-th request of a seed: the same in every case, so that one quiet run serves all."""
    rng = random.Random(f"request {seed} {which}")
    size, count = rng.randrange(SHORTEST, LONGEST), rng.randrange(8, 25)
    prompt = tuple(rng.randrange(*VOCABULARY) for _ in range(length or size))
    options = dict(temperature=rng.choice([0, 1]), seed=rng.randrange(1, 1 << 40), max_tokens=tokens or count, ignore_eos=True, logits_hash=True)
    return Ask(prompt, tuple(sorted(options.items())))


class Call:
    """A request under way, read by a thread of its own."""

    def __init__(self, client, ask, timeout, name):
        self.ask, self.answer, self.error = ask, Answer(), None
        self.tokens_seen, self.ended, self.ended_at = 0, threading.Event(), None
        self.statuses = 0
        self.stream = client.start(list(ask.prompt), timeout=timeout, request_id=name, **dict(ask.options))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for response in self.stream:
                self.answer.take(response)
                self.tokens_seen = len(self.answer.ids)
            self.answer.check()
        except (grpc.RpcError, AssertionError) as error:
            self.error = error
        self.statuses += 1
        self.ended_at = time.monotonic()
        self.ended.set()

    def cancel(self):
        self.stream.cancel()

    def wait(self, seconds=40):
        assert self.ended.wait(seconds), f"no status within {seconds} s"
        return self

    @property
    def code(self):
        """The name of the status: "OK", "CANCELLED", ..., or what was wrong with the answer."""
        if self.error is None:
            return "OK"
        return self.error.code().name if isinstance(self.error, grpc.RpcError) else f"bad answer: {self.error}"

    @property
    def reason(self):
        return reason_of(self.error) if isinstance(self.error, grpc.RpcError) else ""

    @property
    def said(self):
        return f"{self.code} {self.reason}".strip()


class Quiet:
    """Answers of runs in which nothing went wrong, by request."""

    def __init__(self):
        self.known = {}
        self.calls = 0

    def of(self, client, ask):
        if ask not in self.known:
            self.calls += 1
            answer = client.generate(list(ask.prompt), timeout=60, **dict(ask.options))
            assert answer.timing.prefills == 1, "the quiet run was not quiet"
            self.known[ask] = (answer.ids, answer.hashes)
        return self.known[ask]


__all__ = ["Answer", "Ask", "Call", "Client", "Quiet", "ask_of"]
