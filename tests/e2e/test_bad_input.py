"""Bad input to the OpenAI-compatible door, byte by byte: each has the right status, a sentence and a stable code, and the server goes
on."""
import json
import pathlib
import re
import tempfile

import front
import pytest
import raw_http
from harness import TOP, wait_until

COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"
MALFORMED, HEAD = (400, "malformed"), (400, "malformed_request")
BEHIND = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"  # must never be taken for a request


def completion(**more):
    return COMPLETIONS, {"prompt": "a", "max_tokens": 1, **more}


def chat(messages, **more):
    return CHAT, {"messages": messages, "max_tokens": 1, **more}


def user(content):
    return [{"role": "user", "content": content}]


def nested(depth, inside="1", left="[", right="]"):
    return (left * depth + inside + right * depth).encode()


# Name: (path, body), status, code[, param]. Bodies are values for json.dumps, or bytes as they are.
NOT_JSON = {
    "no body": ((COMPLETIONS, b""), *MALFORMED),
    "blanks": ((COMPLETIONS, b" \r\n\t "), *MALFORMED),
    "an open object": ((COMPLETIONS, b"{"), *MALFORMED),
    "an open string": ((COMPLETIONS, b'{"prompt":"a'), *MALFORMED),
    "two bodies": ((COMPLETIONS, b'{"prompt":"a"}{"prompt":"b"}'), *MALFORMED),
    "a comma behind the last": ((COMPLETIONS, b'{"prompt":"a",}'), *MALFORMED),
    "single quotes": ((COMPLETIONS, b"{'prompt':'a'}"), *MALFORMED),
    "a comment": ((COMPLETIONS, b'{"prompt":"a"/*b*/}'), *MALFORMED),
    "a key without quotes": ((COMPLETIONS, b'{prompt:"a"}'), *MALFORMED),
    "a key twice": ((COMPLETIONS, b'{"prompt":"a","prompt":"b"}'), *MALFORMED),
    "a key twice, escaped": ((COMPLETIONS, b'{"prompt":"a","pr\\u006fmpt":"b"}'), *MALFORMED),
    "NaN": ((COMPLETIONS, b'{"prompt":"a","temperature":NaN}'), *MALFORMED),
    "Infinity": ((COMPLETIONS, b'{"prompt":"a","temperature":-Infinity}'), *MALFORMED),
    "a number without an end": ((COMPLETIONS, b'{"prompt":"a","temperature":1e}'), *MALFORMED),
    "a number with zeros before it": ((COMPLETIONS, b'{"prompt":"a","max_tokens":01}'), *MALFORMED),
    "hexadecimal": ((COMPLETIONS, b'{"prompt":"a","max_tokens":0x1}'), *MALFORMED),
    "True": ((COMPLETIONS, b'{"prompt":"a","stream":True}'), *MALFORMED),
    "a form": ((COMPLETIONS, b"prompt=a&max_tokens=1"), *MALFORMED),
    "XML": ((COMPLETIONS, b"<prompt>a</prompt>"), *MALFORMED),
    "a byte order mark": ((COMPLETIONS, b'\xef\xbb\xbf{"prompt":"a"}'), *MALFORMED),
    "UTF-16": ((COMPLETIONS, '{"prompt":"a"}'.encode("utf-16")), *MALFORMED),
    "zeros": ((COMPLETIONS, bytes(64)), *MALFORMED),
    "a zero behind the body": ((COMPLETIONS, b'{"prompt":"a"}\0'), *MALFORMED),
    "a control character in a text": ((COMPLETIONS, b'{"prompt":"a\x01"}'), *MALFORMED),
    "a line's end in a text": ((COMPLETIONS, b'{"prompt":"a\nb"}'), *MALFORMED),
    "an unknown escape": ((COMPLETIONS, b'{"prompt":"\\q"}'), *MALFORMED),
    "half an escape": ((COMPLETIONS, b'{"prompt":"\\u12"}'), *MALFORMED),
    "an array": ((COMPLETIONS, []), *MALFORMED),
    "a text": ((COMPLETIONS, "a"), *MALFORMED),
    "null": ((COMPLETIONS, b"null"), *MALFORMED),
    "a number": ((CHAT, 5), *MALFORMED),
}
NOT_UTF8 = {
    "a byte that no UTF-8 has": ((COMPLETIONS, b'{"prompt":"\xff"}'), *MALFORMED),
    "a character cut off": ((COMPLETIONS, b'{"prompt":"\xe2\x82"}'), *MALFORMED),
    "a byte of a character alone": ((COMPLETIONS, b'{"prompt":"\x80"}'), *MALFORMED),
    "a slash in two bytes": ((COMPLETIONS, b'{"prompt":"\xc0\xaf"}'), *MALFORMED),
    "a surrogate in three bytes": ((COMPLETIONS, b'{"prompt":"\xed\xa0\x80"}'), *MALFORMED),
    "a character beyond the last": ((COMPLETIONS, b'{"prompt":"\xf4\x90\x80\x80"}'), *MALFORMED),
    "an escaped zero in a name": ((COMPLETIONS, b'{"model":"a\\u0000","prompt":"a"}'), *MALFORMED),
    "Latin-1 in a message": ((CHAT, b'{"messages":[{"role":"user","content":"caf\xe9"}]}'), *MALFORMED),
    "an invalid byte in a key": ((COMPLETIONS, b'{"prompt":"a","\xff":1}'), *MALFORMED),
    "an invalid byte in text to tokenize": ((TOKENIZE, b'{"prompt":"\xff"}'), *MALFORMED),
}
NESTED = {
    "5,000 open brackets": ((COMPLETIONS, b"[" * 5000), *MALFORMED),
    "a million open brackets": ((COMPLETIONS, b"[" * 1000000), *MALFORMED),
    "5,000 arrays": ((COMPLETIONS, nested(5000)), *MALFORMED),
    "5,000 objects": ((COMPLETIONS, nested(5000, left='{"a":', right="}")), *MALFORMED),
    "100,000 objects that nobody knows": ((COMPLETIONS, b'{"prompt":"a","x":' + nested(100000, left='{"a":', right="}") + b"}"), *MALFORMED),
    "deep metadata": ((COMPLETIONS, b'{"prompt":"a","metadata":' + nested(500, left='{"a":', right="}") + b"}"), *MALFORMED),
    "a deep tool": ((CHAT, b'{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":'
                     + nested(500, left='{"a":', right="}") + b"}}]}"), *MALFORMED),
    "a prompt of arrays in arrays": (completion(prompt=[[[[1]]]]), 400, "invalid_token_id"),
}
WRONG_TYPES = {
    "a number as prompt": (completion(prompt=5), *MALFORMED, "prompt"),
    "an object as prompt": (completion(prompt={"text": "a"}), *MALFORMED, "prompt"),
    "true as prompt": (completion(prompt=True), *MALFORMED, "prompt"),
    "texts and ids in a prompt": (completion(prompt=["a", 5]), *MALFORMED),
    "ids and texts in a prompt": (completion(prompt=[5, "a"]), 400, "invalid_token_id", "prompt"),
    "a fraction as id": (completion(prompt=[1.5]), 400, "invalid_token_id", "prompt"),
    "a negative id": (completion(prompt=[-1]), 400, "invalid_token_id", "prompt"),
    "an id of 40 bits": (completion(prompt=[1 << 40]), 400, "invalid_token_id", "prompt"),
    "a number as model": (completion(model=5), *MALFORMED, "model"),
    "a list as model": (completion(model=["a"]), *MALFORMED, "model"),
    "a word as temperature": (completion(temperature="warm"), *MALFORMED, "temperature"),
    "true as temperature": (completion(temperature=True), *MALFORMED, "temperature"),
    "a word as max_tokens": (completion(max_tokens="16"), *MALFORMED, "max_tokens"),
    "a fraction as max_tokens": (completion(max_tokens=1.5), *MALFORMED, "max_tokens"),
    "a word as n": (completion(n="2"), *MALFORMED, "n"),
    "a number as stream": (completion(stream=1), *MALFORMED, "stream"),
    "a word as stream": (completion(stream="true"), *MALFORMED, "stream"),
    "a list as stream_options": (completion(stream=True, stream_options=[1]), *MALFORMED, "stream_options"),
    "a word in stream_options": (completion(stream=True, stream_options={"include_usage": "yes"}), *MALFORMED, "stream_options.include_usage"),
    "a number as stop": (completion(stop=5), 400, "invalid_stop", "stop"),
    "numbers in stop": (completion(stop=["a", 5]), 400, "invalid_stop", "stop"),
    "a list as logit_bias": (completion(logit_bias=[1]), *MALFORMED, "logit_bias"),
    "a word as token id": (completion(logit_bias={"ROMEO": 1}), 400, "invalid_token_id", "logit_bias"),
    "a word as bias": (completion(logit_bias={"5": "much"}), 400, "invalid_sampling", "logit_bias"),
    "a word as seed": (completion(seed="lucky"), *MALFORMED, "seed"),
    "true as logprobs of a completion": (completion(logprobs=True), *MALFORMED, "logprobs"),
    "a number as user": (completion(user=5), *MALFORMED, "user"),
    "a text as messages": (chat("Speak."), *MALFORMED, "messages"),
    "an object as messages": (chat({"role": "user", "content": "a"}), *MALFORMED, "messages"),
    "texts as messages": (chat(["Speak."]), *MALFORMED, "messages[0].role"),
    "a message without role": (chat([{"content": "a"}]), *MALFORMED, "messages[0].role"),
    "a role that is no text": (chat([{"role": 7, "content": "a"}]), *MALFORMED, "messages[0].role"),
    "a message without content": (chat([{"role": "user"}]), *MALFORMED, "messages[0].content"),
    "a number as content": (chat(user(5)), *MALFORMED, "messages[0].content"),
    "an object as content": (chat(user({"type": "text", "text": "a"})), *MALFORMED, "messages[0].content"),
    "a part without text": (chat(user([{"type": "text"}])), *MALFORMED, "messages[0].content[0].text"),
    "a text as tools": (chat(user("a"), tools="all"), *MALFORMED, "tools"),
    "a tool without function": (chat(user("a"), tools=[{"type": "function"}]), *MALFORMED),
    "a call without function": (chat([{"role": "assistant", "tool_calls": [{"id": "a"}]}, *user("b")]), *MALFORMED, "messages[0].tool_calls[0].function"),
    "a number as text to tokenize": ((TOKENIZE, {"prompt": 5}), *MALFORMED, "prompt"),
    "a text to detokenize": ((DETOKENIZE, {"tokens": "a"}), *MALFORMED, "tokens"),
    "a fraction to detokenize": ((DETOKENIZE, {"tokens": [0.5]}), 400, "invalid_token_id", "tokens"),
}
OUT_OF_RANGE = {
    "no prompt": ((COMPLETIONS, {}), 400, "missing_input", "prompt"),
    "an empty prompt": (completion(prompt=[]), 400, "empty_prompt", "prompt"),
    "no messages": ((CHAT, {}), 400, "missing_input", "messages"),
    "empty messages": (chat([]), 400, "empty_prompt", "messages"),
    "a model that isn't here": (completion(model="gpt-4"), 404, "model_not_found", "model"),
    "a temperature below 0": (completion(temperature=-1), 400, "invalid_sampling", "temperature"),
    "a temperature beyond all": (completion(temperature=1e300), 400, "malformed", "temperature"),
    "top_p 0": (completion(top_p=0), 400, "invalid_sampling", "top_p"),
    "top_p 1.5": (completion(top_p=1.5), 400, "invalid_sampling", "top_p"),
    "min_p 2": (completion(min_p=2), 400, "invalid_sampling", "min_p"),
    "no tokens": (completion(max_tokens=0), 400, "invalid_sampling", "max_tokens"),
    "a negative max_tokens": (completion(max_tokens=-1), 400, "invalid_sampling", "max_tokens"),
    "max_tokens of 40 bits": (completion(max_tokens=1 << 40), 400, "invalid_sampling", "max_tokens"),
    "n -1": (completion(n=-1), 400, "invalid_sampling", "n"),
    "more than the context": (completion(max_tokens=1000000), 400, "context_length_exceeded", "prompt"),
    "a prompt beyond the context": (completion(prompt="a " * 5000), 400, "context_length_exceeded", "prompt"),
    "n 0": (completion(n=0), 400, "invalid_sampling", "n"),
    "n 17": (completion(n=17), 400, "invalid_sampling", "n"),
    "n 100,000": (completion(n=100000), 400, "invalid_sampling", "n"),
    "129 prompts": (completion(prompt=["a"] * 129), *MALFORMED, "prompt"),
    "16 answers to each of 9 prompts": (completion(prompt=["a"] * 9, n=16), 400, "invalid_sampling", "n"),
    "17 stops": (completion(stop=["x"] * 17), 400, "invalid_stop", "stop"),
    "a stop of 257 bytes": (completion(stop="x" * 257), 400, "invalid_stop", "stop"),
    "an id that isn't in the vocabulary": (completion(prompt=[99999999]), 400, "invalid_token_id", "prompt"),
    "a bias for an id that isn't": (completion(logit_bias={"99999999": 1}), 400, "invalid_token_id", "logit_bias"),
    "a bias of 101": (completion(logit_bias={"5": 101}), 400, "invalid_sampling", "logit_bias"),
    "1,025 biases": (completion(logit_bias={str(i): 1 for i in range(1025)}), 400, "invalid_sampling", "logit_bias"),
    "21 logprobs": (completion(logprobs=21), 400, "invalid_sampling", "logprobs"),
    "top_logprobs alone": (chat(user("a"), top_logprobs=2), 400, "invalid_sampling", "top_logprobs"),
    "a penalty of 0": (completion(repetition_penalty=0), 400, "invalid_sampling", "repetition_penalty"),
    "a presence penalty of 5": (completion(presence_penalty=5), 400, "invalid_sampling", "presence_penalty"),
    "a priority that isn't": (completion(priority="royal"), 400, "invalid_priority", "priority"),
    "a class without classes": (completion(slo_class="chat"), 400, "slo_class_unknown", "slo_class"),
    "a class in a header": ((COMPLETIONS, b'{"prompt": "a"}', "x-baton-slo-class: chat"), 400, "slo_class_unknown", "slo_class"),
    "two classes": ((COMPLETIONS, b'{"prompt": "a", "slo_class": "chat"}', "x-baton-slo-class: code"), 400, "slo_class_conflict", "slo_class"),
    "an objective without a class": (completion(slo_objective={"ttft_ms": 1}), 400, "slo_tightened", "slo_objective"),
    "an objective of 0": (completion(slo_objective={"ttft_ms": 0}), 400, "malformed", "slo_objective.ttft_ms"),
    "an objective that is none": (completion(slo_objective={"ttft": 500}), 400, "unsupported_parameter", "slo_objective"),
    "1,000,000 ids": (completion(prompt=[5] * 1000000), 400, "context_length_exceeded", "prompt"),
}
NOT_OFFERED = {
    "best_of 2": (completion(best_of=2), 400, "unsupported_parameter", "best_of"),
    "a suffix": (completion(suffix="b"), 400, "unsupported_parameter", "suffix"),
    "LoRA": (completion(lora_request={"x": 1}), 400, "unsupported_parameter", "lora_request"),
    "beam search": (completion(use_beam_search=True), 400, "unsupported_parameter", "use_beam_search"),
    "a grammar": (completion(grammar='root ::= "a"'), 400, "unsupported_parameter", "grammar"),
    "a schema beside response_format": (chat(user("a"), json_schema={"type": "object"}), 400, "unsupported_parameter", "json_schema"),
    "an expression beside structured_outputs": (completion(regex="[0-9]+"), 400, "unsupported_parameter", "regex"),
    "a grammar of SGLang's": (chat(user("a"), ebnf='root ::= "a"'), 400, "unsupported_parameter", "ebnf"),
    "a structural tag": (chat(user("a"), structural_tag="{}"), 400, "unsupported_parameter", "structural_tag"),
    "ids as tokens of logprobs": (completion(logprobs=1, return_tokens_as_token_ids=True), 400, "unsupported_parameter", "return_tokens_as_token_ids"),
    "mirostat": (completion(mirostat=1), 400, "unsupported_parameter", "mirostat"),
    "DRY": (completion(dry_multiplier=0.5), 400, "unsupported_parameter", "dry_multiplier"),
    "a search of the web": (chat(user("a"), web_search_options={}), 400, "unsupported_parameter", "web_search_options"),
    "an image": (chat(user([{"type": "image_url", "image_url": {"url": "x"}}])), 400, "unsupported_parameter", "messages[0].content[0].type"),
    "audio": (chat(user([{"type": "input_audio", "input_audio": {}}])), 400, "unsupported_parameter", "messages[0].content[0].type"),
    "functions": (chat(user("a"), functions=[{"name": "f"}]), 400, "unsupported_parameter", "functions"),
    "a template of one's own": (chat(user("a"), chat_template="{{ x }}"), 400, "unsupported_parameter", "chat_template"),
    "embeddings": (("/v1/embeddings", {"input": "a"}), 400, "unsupported_parameter"),
    "responses": (("/v1/responses", {"input": "a"}), 400, "unsupported_parameter"),
    "images": (("/v1/images/generations", {"prompt": "a"}), 400, "unsupported_parameter"),
    "a word as deadline": ((COMPLETIONS, b'{"prompt": "a"}', "x-request-timeout-ms: abc"), 400, "malformed"),
    "a deadline of 0": ((COMPLETIONS, b'{"prompt": "a"}', "x-request-timeout-ms: 0"), 400, "malformed"),
    "a negative deadline": ((COMPLETIONS, b'{"prompt": "a"}', "x-request-timeout-ms: -5"), 400, "malformed"),
    "a fraction as deadline": ((COMPLETIONS, b'{"prompt": "a"}', "x-request-timeout-ms: 1.5"), 400, "malformed"),
    "a compressed body": ((COMPLETIONS, b"\x1f\x8b\x08\0\0\0\0\0", "Content-Encoding: gzip"), 400, "unsupported_parameter"),
}
BODIES = {**NOT_JSON, **NOT_UTF8, **NESTED, **WRONG_TYPES, **OUT_OF_RANGE, **NOT_OFFERED}


def head(*lines, body=b"", end=b"\r\n"):
    return end.join(line if isinstance(line, bytes) else line.encode("latin-1") for line in lines) + 2 * end + body


POST = ("POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json")
GET = ("GET /v1/models HTTP/1.1", "Host: localhost")
CHUNKED = "Transfer-Encoding: chunked"
# Name: bytes, status, code. BEHIND stands where a second reader might find a second request.
HEADS = {
    "two classes in headers": (head(*POST, "X-Baton-Slo-Class: a", "x-baton-slo-class: a", "Content-Length: 0", body=BEHIND), *HEAD),
    "two lengths": (head(*POST, "Content-Length: 0", "Content-Length: 49", body=BEHIND), *HEAD),
    "one length twice": (head(*POST, "Content-Length: 0", "Content-Length: 0", body=BEHIND), *HEAD),
    "lengths in a list": (head(*POST, "Content-Length: 0, 49", body=BEHIND), *HEAD),
    "a length with a sign": (head(*POST, "Content-Length: +0", body=BEHIND), *HEAD),
    "a negative length": (head(*POST, "Content-Length: -1", body=BEHIND), *HEAD),
    "a length in hexadecimal": (head(*POST, "Content-Length: 0x0", body=BEHIND), *HEAD),
    "a length with a vertical tab": (head(*POST, "Content-Length: 0\x0b", body=BEHIND), *HEAD),
    "an empty length": (head(*POST, "Content-Length:", body=BEHIND), *HEAD),
    "a length of 30 digits": (head(*POST, "Content-Length: " + "9" * 30), 413, "body_too_large"),
    "a blank before the colon": (head(*POST, "Content-Length : 0", body=BEHIND), *HEAD),
    "a length and chunks": (head(*POST, "Content-Length: 5", CHUNKED, body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "chunks and a length": (head(*POST, CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "two encodings": (head(*POST, CHUNKED, "Transfer-Encoding: cow", body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "an encoding that isn't": (head(*POST, "Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "identity behind chunks": (head(*POST, "Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "a blank before the encoding's colon": (head(*POST, "Transfer-Encoding : chunked", body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "a folded encoding": (head(*POST, "Transfer-Encoding:", " chunked", body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "a folded field": (head(*POST, "X: y", "\t" + CHUNKED, body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "a blank before a field": (head(*POST, " " + CHUNKED, body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "chunks in HTTP/1.0": (head("POST /v1/completions HTTP/1.0", CHUNKED, body=b"0\r\n\r\n" + BEHIND), *HEAD),
    "chunks that end with LF": (head(*POST, CHUNKED, body=b"0\n\n" + BEHIND), *HEAD),
    "a chunk of 0x0": (head(*POST, CHUNKED, body=b"0x0\r\n\r\n" + BEHIND), *HEAD),
    "a chunk of -1": (head(*POST, CHUNKED, body=b"-1\r\n\r\n" + BEHIND), *HEAD),
    "a chunk longer than it says": (head(*POST, CHUNKED, body=b"1\r\nab\r\n0\r\n\r\n" + BEHIND), *HEAD),
    "a chunk of 2^64": (head(*POST, CHUNKED, body=b"10000000000000001\r\na\r\n0\r\n\r\n" + BEHIND), *HEAD),
    "a chunk of 4 GiB": (head(*POST, CHUNKED, body=b"100000000\r\na\r\n" + BEHIND), 413, "body_too_large"),
    "a bare LF in an extension": (head(*POST, CHUNKED, body=b"1;\n" + BEHIND), *HEAD),
    "lines that end with LF": (head(*GET, end=b"\n") + BEHIND, *HEAD),
    "one line that ends with LF": (b"GET /v1/models HTTP/1.1\r\nHost: a\n\r\n" + BEHIND, *HEAD),
    "a bare CR in a field": (head(*GET, "X: y\rGET /v1/models HTTP/1.1"), *HEAD),
    "no host": (head("GET /v1/models HTTP/1.1", "X: y") + BEHIND, *HEAD),
    "two hosts": (head(*GET, "Host: other") + BEHIND, *HEAD),
    "a blank in a field's name": (head(*GET, "X y: z") + BEHIND, *HEAD),
    "a field without a colon": (head(*GET, "nothing") + BEHIND, *HEAD),
    "a zero in a field": (head(*GET, b"X: \0") + BEHIND, *HEAD),
    "no version": (head("GET /v1/models", "Host: localhost") + BEHIND, *HEAD),
    "a version that isn't": (head("GET /v1/models HTTP/2.0", "Host: localhost") + BEHIND, 505, "http_version"),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + BEHIND, 505, "http_version"),
    "a word behind the version": (head("GET /v1/models HTTP/1.1 x", "Host: localhost") + BEHIND, *HEAD),
    "a blank in the path": (head("GET /v1/models x HTTP/1.1", "Host: localhost") + BEHIND, *HEAD),
    "a path without a slash": (head("GET v1/models HTTP/1.1", "Host: localhost") + BEHIND, *HEAD),
    "a zero in the path": (head("GET /v1/models/%00 HTTP/1.1", "Host: localhost") + BEHIND, *HEAD),
    "half an escape in the path": (head("GET /v1/models/%4 HTTP/1.1", "Host: localhost") + BEHIND, *HEAD),
    "a path that is no UTF-8": (head("GET /v1/models/%ff HTTP/1.1", "Host: localhost") + BEHIND, *HEAD),
    "CONNECT": (head("CONNECT a:80 HTTP/1.1", "Host: localhost") + BEHIND, *HEAD),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + BEHIND, *HEAD),
    "an expectation that isn't": (head(*POST, "Expect: 200-ok", "Content-Length: 49", body=BEHIND), 417, "expectation_failed"),
    "a path of 9,000 bytes": (head("GET /" + "a" * 9000 + " HTTP/1.1", "Host: localhost"), 414, "uri_too_long"),
    "a field of 20,000 bytes": (head(*GET, "X: " + "y" * 20000), 431, "headers_too_large"),
    "2,000 fields": (head(*GET, *(f"X{i}: y" for i in range(2000))), 431, "headers_too_large"),
    "a body of 10 MiB": (head(*POST, f"Content-Length: {10 << 20}", body=b"[" * (10 << 20)), 413, "body_too_large"),
    "chunks of 10 MiB": (head(*POST, CHUNKED, body=(b"100000\r\n" + b"[" * (1 << 20) + b"\r\n") * 10 + b"0\r\n\r\n"), 413, "body_too_large"),
    "a path that isn't": (head("GET /v1/secrets HTTP/1.1", "Host: localhost"), 404, "not_found"),
    "a method that isn't": (head("BREW /v1/models HTTP/1.1", "Host: localhost"), 405, "method_not_allowed"),
    "GET where POST is meant": (head("GET /v1/completions HTTP/1.1", "Host: localhost"), 405, "method_not_allowed"),
    "DELETE of a model": (head("DELETE /v1/models/x HTTP/1.1", "Host: localhost"), 405, "method_not_allowed"),
    "a model that isn't, with slashes": (head("GET /v1/models/..%2f..%2fetc%2fpasswd HTTP/1.1", "Host: localhost"), 404, "model_not_found"),
}
RETRIED = {408, 409, 429, 500, 502, 503}  # statuses on which the SDKs send again


def sentence_of(error):
    """For a person, and with nothing of our inside."""
    text = error["message"]
    assert len(text) > 10 and " " in text and text.isprintable(), text
    assert not re.search(r"\.c:\d|0x[0-9a-f]{6}|STATUS_|REASON_|assert", text), text
    assert not any(str(folder) in text for folder in (TOP, pathlib.Path.home(), tempfile.gettempdir())), text
    return text


def refused(answer, status, code, param=None):
    assert answer.status == status, (answer.status, answer.body)
    error = answer.error
    assert error["code"] == code and error["type"], error
    assert param is None or error["param"] == param, error
    assert answer.status not in RETRIED and answer.headers["content-type"].startswith("application/json")
    return sentence_of(error)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from harness import Cluster
    cluster = Cluster(tmp_path_factory.mktemp("bad"), settings=front.SETTINGS)
    yield cluster
    cluster.stop()


def test_every_case_is_refused_and_the_server_goes_on(cluster, pytestconfig):
    door, sentences, wrong = front.Front(cluster), {}, []
    for name, ((path, body, *fields), status, code, *param) in BODIES.items():
        answer = raw_http.exchange(door.address, raw_http.post(path, body, *fields, "Connection: close"))
        try:
            sentences[name] = refused(answer, status, code, *param)
            assert answer.headers["x-request-id"] and answer.headers["x-should-retry"] == "false"
        except (AssertionError, KeyError, ValueError) as error:
            wrong.append(f"{name}: {error!r}")
    for name, (data, status, code) in HEADS.items():
        answer = raw_http.exchange(door.address, data)
        try:
            sentences[name] = refused(answer, status, code)
        except (AssertionError, KeyError, ValueError) as error:
            wrong.append(f"{name}: {error!r} {answer.status} {answer.body[:200]}")
    assert not wrong, "\n".join(wrong)
    assert len(sentences) == len(BODIES) + len(HEADS) >= 190
    pytestconfig.table = [f"{len(sentences)} cases of bad input, each refused with its status, sentence and code"]
    assert len(door.complete("ROMEO:", max_tokens=3).json["choices"]) == 1
    assert cluster.total("router", "baton_router_requests_total", status="ok") == 1
    wait_until("nothing is held", lambda: all(b["used"] == b["pinned"] == b["landing"] == 0 for b in cluster.all_blocks().values()), 20)


def test_what_stands_behind_a_bad_head_is_never_a_request(cluster):
    """Smuggling: after each of these the connection ends, and the models, which the second request asks for, are not listed."""
    door = front.Front(cluster)
    for name, (data, status, code) in HEADS.items():
        if data.endswith(BEHIND):
            first, second = raw_http.exchange(door.address, data, 2)
            assert first.status == status and second.status is None, (name, second.status, second.body)
            assert first.headers["connection"] == "close", name


def test_a_connection_goes_on_where_its_request_was_whole(cluster):
    """SDKs keep their connections: a mistake in a body doesn't cost the connection."""
    door = front.Front(cluster)
    connection = door.connect()
    for (path, body, *fields), status, code, *_ in list(BODIES.values())[::7]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, {**door.headers, **dict(field.split(": ") for field in fields)})
        answer = connection.getresponse()
        assert answer.status == status and json.loads(answer.read())["error"]["code"] == code
    connection.request("POST", COMPLETIONS, json.dumps({"prompt": "ROMEO:", "max_tokens": 2}), door.headers)
    assert connection.getresponse().status == 200
