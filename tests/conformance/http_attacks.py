"""Attacks on the HTTP door: by strangers, who have no key, from an address of their own; and by a client that has one."""
import json

from attack import STRANGER, Ended, attack

HEAD = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LARGE = 4 << 20  # bytes of a body, which is as long as a text may be
HELD = 50  # connections that each thread of an attack tries to hold


def hold(attacker, said):
    """Holds as many connections as it gets, each of which has said so much and waits. The server ends some, others take their places."""
    held = []
    while not attacker.stop.is_set():
        try:
            if len(held) < HELD:
                held.append(attacker.connect(attacker.front, STRANGER))
                held[-1].send(said)
        except Ended:
            attacker.stop.wait(0.02)
        for line in held[:]:
            try:
                line.look()
            except (Ended, OSError):  # ended now, or while it said so much
                held.remove(line)
    for line in held:
        line.close()
    raise Ended


@attack("HTTP", world="keyed")
def all_places_of_the_door(attacker):
    hold(attacker, b"")


@attack("HTTP", world="keyed", quick=True)
def slow_heads(attacker):
    hold(attacker, HEAD.encode())


@attack("HTTP", world="keyed")
def slow_bodies(attacker):
    hold(attacker, HEAD.encode() + b"Content-Length: 4000000\r\n\r\n{")


@attack("HTTP", world="keyed", threads=8)
def large_bodies_without_a_key(attacker):
    """The router answers each from its head, and reads no more of it than it takes for the client to see the answer."""
    line = attacker.connect(attacker.front, STRANGER)
    line.send(HEAD.encode() + b"Content-Length: %d\r\n\r\n" % LARGE)
    line.send(b"x" * LARGE)
    line.wait()


@attack("HTTP", world="keyed", threads=8)
def large_chunks_without_a_key(attacker):
    line = attacker.connect(attacker.front, STRANGER)
    line.send(HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        line.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        line.look()


@attack("HTTP", world="keyed", threads=8, ends=False)
def large_bodies_of_one_tenant(attacker):
    """Sound requests with a key, of texts that have to be read and tokenized to be refused."""
    body = json.dumps({"prompt": "O Romeo, wherefore " * (LARGE // 19 - 1), "max_tokens": 1}).encode()
    line = attacker.connect(attacker.front)
    head = HEAD + f"Authorization: Bearer {attacker.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    while True:
        line.send(head.encode() + body)
        line.hear(b"context_length_exceeded")


@attack("HTTP", world="keyed", threads=16, ends=False, large=True)
def bodies_that_would_take_all_memory(attacker):
    """With a key: bodies that are whole except for their last byte, twice receive-memory together. The tenant gets half of it, so that
    small and large requests of others go on."""
    line = attacker.connect(attacker.front)
    line.send((HEAD + f"Authorization: Bearer {attacker.key}\r\nContent-Length: {2 * LARGE}\r\n\r\n").encode() + b"x" * (2 * LARGE - 1))
    line.wait()
