"""Malformed requests, each with the status, the stable code and the sentence that it gets; after each one a sound request is answered.

    .venv/bin/python -m pytest -q tests/e2e/test_malformed.py        prints the table
"""
import struct

import grpc
import pytest
from client import Client, pb, reason_of, request
from harness import Cluster
from wire import CONTINUATION, DATA, END_HEADERS, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, call, call_headers, frame, message

INVALID, EXHAUSTED, UNIMPLEMENTED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
FAILED, NOT_FOUND, INTERNAL, UNAVAILABLE = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL,
                                            grpc.StatusCode.UNAVAILABLE)
GENERATE, ONCE, TOKENIZE, DETOKENIZE = (f"/baton.v1.Baton/{name}" for name in ("Generate", "GenerateOnce", "Tokenize", "Detokenize"))
MIB = 1 << 20
NAN, INFINITY = float("nan"), float("inf")


# --- protobuf by hand ---

def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, wire, body):
    return varint(number << 3 | wire) + (varint(len(body)) + body if wire == 2 else body)


TEXT = field(3, 2, b"ROMEO:")
IDS = field(4, 2, field(1, 2, b"\x01\x02"))


def nested(depth):
    """Groups and messages inside each other; field 99 is unknown."""
    body = b""
    for _ in range(depth):
        body = field(99, 2, body)
    return TEXT + body


def sampled(**values):
    return request("ROMEO:", **values)


# name, method, request (a message or bytes), status, code, part of the sentence
CASES = [
    # Bytes that are no GenerateRequest.
    ("nothing at all", GENERATE, b"", INVALID, "missing_input", "neither text nor token_ids"),
    ("a lone tag", GENERATE, b"\x1a", INVALID, "malformed", "malformed GenerateRequest"),
    ("a text that is cut off", GENERATE, TEXT[:-3], INVALID, "malformed", "malformed GenerateRequest"),
    ("a length beyond the end", GENERATE, b"\x1a\xff\xff\xff\xff\x0fabc", INVALID, "malformed", "malformed GenerateRequest"),
    ("a length of 2^64 - 1", GENERATE, b"\x1a" + b"\xff" * 9 + b"\x01", INVALID, "malformed", "malformed GenerateRequest"),
    ("a varint without end", GENERATE, b"\x1a" + b"\xff" * 11, INVALID, "malformed", "malformed GenerateRequest"),
    ("text as a number", GENERATE, field(3, 0, varint(7)), INVALID, "malformed", "malformed GenerateRequest"),
    ("token_ids as a number", GENERATE, field(4, 5, b"\0" * 4), INVALID, "malformed", "malformed GenerateRequest"),
    ("the obsolete wire type of groups", GENERATE, varint(3 << 3 | 3), INVALID, "malformed", "malformed GenerateRequest"),
    ("a wire type that isn't", GENERATE, varint(3 << 3 | 7), INVALID, "malformed", "malformed GenerateRequest"),
    ("field number 0", GENERATE, b"\x00\x00" + TEXT, INVALID, "malformed", "malformed GenerateRequest"),
    ("text that is not UTF-8", GENERATE, field(3, 2, b"a\xff\xfe"), INVALID, "malformed", "text is not valid UTF-8"),
    ("text with a surrogate", GENERATE, field(3, 2, b"\xed\xa0\x80"), INVALID, "malformed", "text is not valid UTF-8"),
    ("text with an overlong slash", GENERATE, field(3, 2, b"\xc0\xaf"), INVALID, "malformed", "text is not valid UTF-8"),
    ("a name with a NUL", GENERATE, field(2, 2, b"a\0b"), INVALID, "malformed", "model holds a NUL byte"),
    ("a stop that is not UTF-8", GENERATE, TEXT + field(6, 2, field(1, 2, b"\xff")), INVALID, "malformed", "strings is not valid UTF-8"),
    ("ids that end in the middle", GENERATE, field(4, 2, field(1, 2, b"\x80")), INVALID, "malformed", "malformed"),
    ("zeros", GENERATE, b"\0" * 1000, INVALID, "malformed", "malformed GenerateRequest"),
    ("another protocol", GENERATE, b"GET / HTTP/1.1\r\n\r\n", INVALID, "malformed", "malformed GenerateRequest"),
    # The requested outputs.
    ("ids without any", GENERATE, request([]), INVALID, "empty_prompt", "the prompt has no tokens"),
    ("an id beyond the vocabulary", GENERATE, request([1, 2, 1 << 31]), INVALID, "invalid_token_id", "token_ids[2] is 2147483648, but the model's ids end at 2047"),
    ("the first id beyond it", GENERATE, request([2048]), INVALID, "invalid_token_id", "token_ids[0] is 2048"),
    ("a million ids", GENERATE, request([1] * 1_000_000), INVALID, "context_length_exceeded", "the prompt has 1000000 tokens"),
    ("a text longer than the context", GENERATE, request("to be or not to be " * 10000), INVALID, "context_length_exceeded", "more tokens than the model's context"),
    ("a text of 4 MiB and a byte", GENERATE, request("a" * (4 * MIB + 1)), INVALID, "text_too_long", "at most 4194304 bytes, got 4194305"),
    ("a message of 5 MiB and a byte", GENERATE, request("a" * 5 * MIB), EXHAUSTED, "message_too_large", "but the limit is 5242880"),
    ("a message of 11 MiB", GENERATE, request("a" * 11 * MIB), EXHAUSTED, "", "larger than max"),
    ("max_tokens 0", GENERATE, sampled(max_tokens=0), INVALID, "invalid_sampling", "max_tokens must be between 1 and 1048576 (0: with echo, for the prompt alone), got 0"),
    ("max_tokens 2^32 - 1", GENERATE, sampled(max_tokens=2**32 - 1), INVALID, "invalid_sampling", "max_tokens must be between 1 and 1048576"),
    ("max_tokens beyond the context", GENERATE, sampled(max_tokens=100_000), INVALID, "context_length_exceeded", "max_tokens is 100000"),
    ("min_tokens above max_tokens", GENERATE, sampled(max_tokens=3, min_tokens=4), INVALID, "invalid_sampling", "min_tokens (4) must not be above"),
    ("temperature below 0", GENERATE, sampled(temperature=-0.1), INVALID, "invalid_sampling", "temperature must be between 0 and 100"),
    ("temperature NaN", GENERATE, sampled(temperature=NAN), INVALID, "invalid_sampling", "temperature must be between 0 and 100, got nan"),
    ("temperature infinite", GENERATE, sampled(temperature=INFINITY), INVALID, "invalid_sampling", "temperature must be between 0 and 100, got inf"),
    ("top_p 0", GENERATE, sampled(top_p=0), INVALID, "invalid_sampling", "top_p must be above 0"),
    ("top_p above 1", GENERATE, sampled(top_p=1.01), INVALID, "invalid_sampling", "top_p must be above 0 and at most 1"),
    ("top_p NaN", GENERATE, sampled(top_p=NAN), INVALID, "invalid_sampling", "got nan"),
    ("min_p 1", GENERATE, sampled(min_p=1), INVALID, "invalid_sampling", "min_p must be at least 0 and below 1"),
    ("min_p below 0", GENERATE, sampled(min_p=-1), INVALID, "invalid_sampling", "min_p must be at least 0"),
    ("17 stops", GENERATE, request("a", stop=["x"] * 17), INVALID, "invalid_stop", "at most 16"),
    ("100,000 stops", GENERATE, request("a", stop=["x"] * 100_000), INVALID, "malformed", "needs too much memory"),
    ("an empty stop", GENERATE, request("a", stop=["x", ""]), INVALID, "invalid_stop", "1 to 256 bytes"),
    ("a stop of 257 bytes", GENERATE, request("a", stop=["x" * 257]), INVALID, "invalid_stop", "got 257"),
    ("65 stop ids", GENERATE, request("a", stop_ids=[1] * 65), INVALID, "invalid_stop", "at most 64"),
    ("a stop id beyond the vocabulary", GENERATE, request("a", stop_ids=[2048]), INVALID, "invalid_token_id", "2048"),
    ("a priority that is none", GENERATE, pb.GenerateRequest(text="a", priority=3), INVALID, "invalid_priority", "got 3"),
    ("another model", GENERATE, pb.GenerateRequest(text="a", model="gpt-5"), NOT_FOUND, "model_not_found", '"gpt-5" is not served here'),
    ("a request_id with a blank", GENERATE, request("a", request_id="two words"), INVALID, "invalid_request_id", "printable ASCII"),
    ("a request_id that is not ASCII", GENERATE, request("a", request_id="naïve"), INVALID, "invalid_request_id", "printable ASCII"),
    ("a request_id of 129 bytes", GENERATE, request("a", request_id="x" * 129), INVALID, "invalid_request_id", "at most 128 bytes"),
    # Other methods.
    ("GenerateOnce of nothing", ONCE, b"", INVALID, "missing_input", "neither text nor token_ids"),
    ("Tokenize with a cut text", TOKENIZE, b"\x12\x05ab", INVALID, "malformed", "malformed TokenizeRequest"),
    ("Tokenize for another model", TOKENIZE, pb.TokenizeRequest(text="a", model="b"), NOT_FOUND, "model_not_found", "not served here"),
    ("Tokenize of 4 MiB and a byte", TOKENIZE, pb.TokenizeRequest(text="a" * (4 * MIB + 1)), INVALID, "text_too_long", "got 4194305"),
    ("Detokenize beyond the vocabulary", DETOKENIZE, pb.DetokenizeRequest(ids=[2048]), INVALID, "invalid_token_id", "2048"),
    ("Detokenize to over 4 MiB", DETOKENIZE, pb.DetokenizeRequest(ids=[2000] * 2_400_000), EXHAUSTED, "answer_too_large", ""),
    ("an unknown method", "/baton.v1.Baton/Chat", b"", UNIMPLEMENTED, "unknown_method", "unknown method /baton.v1.Baton/Chat"),
    ("an unknown service", "/nobody.v1.Nothing/Do", b"", UNIMPLEMENTED, "unknown_method", "unknown method /nobody"),
    ("a method of 10,000 bytes", "/" + "x" * 10000, b"", UNIMPLEMENTED, "unknown_method", "unknown method /xxx"),
    ("a registration from outside", "/baton.worker.v1.Registry/RegisterWorker", b"\x0a\x02\x08\x63", FAILED, "wrong_version", "version 99"),
    ("a registration without a worker", "/baton.worker.v1.Registry/RegisterWorker", b"", INVALID, "malformed", "no info"),
]
# Not wrong, however strange: protobuf lets these pass.
SOUND = [
    ("fields that nobody knows", TEXT + field(99, 2, b"whatever")),
    ("messages inside each other, 10,000 deep, in such a field", nested(10000)),
    ("both inputs: the last one counts", IDS + TEXT),
    ("an enumeration value of the future", TEXT + field(7, 2, field(9, 0, varint(77)))),
    ("the same field twice", TEXT + TEXT),
]


SOUND_CALL = message(pb.TokenizeRequest(text="ab").SerializeToString())
PONG = frame(PING, 0, 0, b"12345678")
# name, the beginning of the connection (None: a sound one), what follows, how it ends: see Wire.outcome
WIRE_CASES = [
    ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"", "closed"),
    ("TLS", bytes.fromhex("16030100f8010000f40303") + b"x" * 200, b"", "closed"),
    ("noise", b"\xff" * 64, b"", "closed"),
    ("a frame of 16 MiB", None, frame(DATA, 0, 1, b"x" * 1000, length=0xFFFFFF), "closed"),
    ("settings of a wrong size", None, frame(SETTINGS, 0, 0, b"abc"), "closed"),
    ("a window of 2^31", None, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)), ("GOAWAY FLOW_CONTROL_ERROR", "closed")),
    ("a window update by 0", None, frame(WINDOW_UPDATE, 0, 0, bytes(4)), "closed"),
    ("a continuation of nothing", None, frame(CONTINUATION, END_HEADERS, 1, b""), "closed"),
    ("an index into no header table", None, frame(HEADERS, END_HEADERS | 1, 1, b"\xff\xff\xff\x7f"), "14 None Failed parsing HTTP/2"),
    ("a header that is cut off", None, frame(HEADERS, END_HEADERS | 1, 1, b"\x00\x7f\xff"), "14 None Failed parsing HTTP/2"),
    ("GET instead of POST", None, call(GENERATE, message(b""), method="GET"), "2 None Bad method header"),
    ("no path", None, call(None, message(b"")), "2 None Missing :path header"),
    ("no te: trailers", None, call(GENERATE, message(b""), te=None), "2 None Missing :te header"),
    ("gzip", None, call(TOKENIZE, message(b"x", compressed=1), ("grpc-encoding", "gzip")), "12 None Compression algorithm 'gzip' is disabled."),
    ("no message", None, call(GENERATE, b""), "3 missing_message this method takes exactly one request message, none came"),
    ("a message that is cut off", None, call(GENERATE, message(b"abc", length=10)), "3 missing_message "),
    ("an unknown kind of message", None, call(GENERATE, message(b"abc", compressed=7)), "3 missing_input "),
    ("bytes that are no protobuf", None, call(GENERATE, message(b"\x1a\xff\xff")), "3 malformed malformed GenerateRequest message"),
    ("half a call, then nothing", None, frame(HEADERS, END_HEADERS, 1, call_headers(GENERATE)) + PONG, "pong"),
    ("a call that is taken back", None, frame(HEADERS, END_HEADERS, 1, call_headers(GENERATE)) + frame(RST_STREAM, 0, 1, b"\0\0\0\x08") + PONG, "pong"),
    ("a kind of frame that nobody knows", None, frame(0x55, 0, 0, b"abc") + PONG, "pong"),
    ("data for a stream that isn't", None, frame(DATA, 0, 7, b"abc") + PONG, "pong"),
    ("another content-type", None, call(TOKENIZE, SOUND_CALL, content_type="text/html"), "0 None None"),
    ("a deadline that is no time", None, call(TOKENIZE, SOUND_CALL, ("grpc-timeout", "abc")), "0 None None"),
    ("a sound call", None, call(TOKENIZE, SOUND_CALL), "0 None None"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, request):
    started = Cluster(tmp_path_factory.mktemp("malformed"))
    table = []
    started.table = table
    yield started
    started.stop()
    width = max(len(row[0]) for row in table)
    request.config.table = [f"{name:{width}}  {status:20} {code or '-':24} {sentence[:110]}" for name, status, code, sentence in table]


@pytest.fixture(scope="module")
def client(cluster):
    opened = Client(cluster.grpc)
    yield opened
    opened.close()


def raw(channel, path, message, metadata=()):
    """Calls with bytes; returns (status, code, sentence)."""
    body = message if isinstance(message, bytes) else message.SerializeToString()
    call = channel.unary_stream(path, request_serializer=lambda b: b, response_deserializer=lambda b: b)(body, timeout=30, metadata=metadata)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    return caught.value.code(), reason_of(caught.value), caught.value.details()


def assert_healthy(client):
    assert len(client.generate("ROMEO:", max_tokens=2, temperature=0, ignore_eos=True).ids) == 2


@pytest.mark.parametrize("name,path,message,status,code,sentence", CASES, ids=[case[0] for case in CASES])
def test_malformed_request(cluster, client, name, path, message, status, code, sentence):
    got = raw(client.channel, path, message)
    cluster.table.append((name, got[0].name, got[1], got[2]))
    assert got[:2] == (status, code), got
    assert sentence in got[2], got
    assert_healthy(client)


def test_headers_over_16_kib(cluster, client):
    """gRPC core answers, and may close the connection that they came over (in the middle of a header block): other clients' connections
    stay."""
    with grpc.insecure_channel(cluster.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        got = raw(channel, GENERATE, TEXT, metadata=[("x-large", "a" * 17000)])
    cluster.table.append(("17,000 bytes of metadata", got[0].name, got[1], got[2]))
    assert got == (EXHAUSTED, "", "received initial metadata size exceeds limit")
    assert_healthy(client)


@pytest.mark.parametrize("name,message", SOUND, ids=[case[0] for case in SOUND])
def test_strange_but_sound_request(client, name, message):
    call = client.channel.unary_stream(GENERATE, request_serializer=lambda b: b, response_deserializer=pb.GenerateResponse.FromString)
    assert [r for r in call(message, timeout=30) if r.WhichOneof("event") == "finished"]


@pytest.mark.parametrize("name,preface,data,outcome", WIRE_CASES, ids=[case[0] for case in WIRE_CASES])
def test_malformed_connection(cluster, client, name, preface, data, outcome):
    """Below gRPC. A call that is sound ends without a reason and without a sentence."""
    wire = Wire(cluster.grpc, preface)
    wire.send(data)
    got = wire.outcome()
    wire.close()
    cluster.table.append((name, "wire", "", got))
    assert got.startswith(outcome), got
    assert_healthy(client)
