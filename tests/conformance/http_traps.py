"""Known traps for clients of other servers, over HTTP: each trap is a function of a Door that asserts, and returns its observation in a few
words.

`grpc` of a trap without an equivalent in grpc_traps.py says why there is none."""
import json
import re
import time

import raw_http

TRAPS = {}
FINISHES = {"stop", "length", "tool_calls", "content_filter", "function_call"}
NO_JSON = "protobuf, not JSON"
FRAMING = "framed by HTTP/2"
ENDS = ["<|endoftext|>", "<|im_end|>", "<|eot_id|>", "</s>"]  # as models end
WIDE = "[é漢🙂]{8}"


def trap(client, grpc=None):
    def add(function):
        TRAPS[function.__name__] = (function, client, grpc)
        return function
    return add


def good(reply):
    assert reply.status == 200, (reply.status, reply.body[:500])
    return reply.json


def text_of(reply):
    return good(reply)["choices"][0]["text"]


def content_of(reply):
    return good(reply)["choices"][0]["message"]["content"]


def streamed(reply):
    assert reply.status == 200, (reply.status, reply.body[:500])
    return reply.frames


def both(door, **more):
    """(whole, frames) of the same completion."""
    more = {"max_tokens": 12, "seed": 7, **more}
    return good(door.complete(door.prompt, **more)), streamed(door.complete(door.prompt, stream=True, **more))


# ------------------------------------------------------------------------------ objects, streams, usage

@trap("aiperf", NO_JSON)
def every_chunk_has_id_object_created_model(door):
    for reply, kind in ((door.complete(door.prompt, stream=True, max_tokens=4), "text_completion"),
                        (door.chat("Speak.", stream=True, max_tokens=4), "chat.completion.chunk")):
        frames = streamed(reply)
        assert {frame["object"] for frame in frames} == {kind} and len({frame["id"] for frame in frames}) == 1
        assert all(frame["model"] == door.model and frame["created"] > 0 for frame in frames)
    return "text_completion, chat.completion.chunk"


@trap("openai")
def models_are_listed_and_told(door):
    listed = good(door.ask("/v1/models"))
    assert listed["object"] == "list"
    for model in listed["data"]:
        assert model["object"] == "model" and model["created"] > 0 and model["owned_by"]
        assert good(door.ask(f"/v1/models/{model['id']}"))["id"] == model["id"]
    return ", ".join(model["id"] for model in listed["data"])


@trap("openai")
def usage_has_its_three_counts(door):
    usage = good(door.complete(door.prompt, max_tokens=5, ignore_eos=True))["usage"]
    assert usage["prompt_tokens"] == len(door.ids) and usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return f"{usage['prompt_tokens']} + {usage['completion_tokens']} = {usage['total_tokens']}"


@trap("LangChain")
def no_usage_chunk_unless_asked(door):
    for options in (None, {}, {"include_usage": False}):
        frames = streamed(door.complete(door.prompt, stream=True, max_tokens=3, stream_options=options))
        assert all(frame["choices"] and not frame.get("usage") for frame in frames)
    return "none"


@trap("litellm")
def the_usage_chunk_has_no_choices_and_is_last(door):
    _, frames = both(door, stream_options={"include_usage": True})
    assert frames[-1]["choices"] == [] and frames[-1]["usage"]["total_tokens"] > 0
    assert all(frame["choices"] and frame["usage"] is None for frame in frames[:-1])
    return "the last of %d frames" % len(frames)


@trap("guidellm", "one Usage at the end: tokens are counted in deltas")
def usage_in_every_chunk_if_asked(door):
    body = {"max_tokens": 6, "stop": None, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    counts = [frame["usage"]["completion_tokens"] for frame in streamed(door.complete(door.prompt, **body))]
    assert counts == sorted(counts) and counts[-1] == 6
    return f"completion_tokens {counts}"


@trap("OpenAI's API")
def stream_and_whole_say_the_same(door):
    whole, frames = both(door)
    assert "".join(frame["choices"][0]["text"] for frame in frames) == whole["choices"][0]["text"]
    chat = dict(max_tokens=12, seed=7)
    said = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in streamed(door.chat("Speak.", stream=True, **chat)))
    assert said == content_of(door.chat("Speak.", **chat))
    return repr(said[:24])


@trap("vllm bench", FRAMING)
def frames_end_with_line_feeds_alone(door):
    body = door.complete(door.prompt, stream=True, max_tokens=4).body
    assert b"\r" not in body and all(part.startswith(b"data: ") for part in body.split(b"\n\n")[:-1])
    return f"{body.count(b'data: ')} frames"


@trap("guidellm", FRAMING)
def the_last_line_is_done(door):
    lines = door.complete(door.prompt, stream=True, max_tokens=2).body.decode().split("\n")
    assert [line for line in lines if line][-1] == "data: [DONE]" and lines.count("data: [DONE]") == 1
    return "data: [DONE]"


@trap("vllm bench", FRAMING)
def a_write_is_whole_frames(door):
    answer = raw_http.exchange(door.address, raw_http.post("/v1/completions", {"model": door.model, "prompt": door.prompt, "stream": True, "max_tokens": 6}, *door.fields))
    assert answer.chunks and all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in answer.chunks)
    return f"{len(answer.chunks)} chunks of HTTP"


@trap("proxies", FRAMING)
def streams_have_the_headers_that_proxies_need(door):
    headers = door.complete(door.prompt, stream=True, max_tokens=1).headers
    assert headers["content-type"].startswith("text/event-stream") and headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no"
    return f"{headers['content-type']}; x-accel-buffering: no"


@trap("vllm bench", "no roles in answers")
def the_role_comes_with_the_first_text(door):
    """A chunk of the role alone would be taken for the first token."""
    frames = streamed(door.chat("Speak.", stream=True, max_tokens=6, ignore_eos=True))
    roles = [frame["choices"][0]["delta"].get("role") for frame in frames]
    assert roles[0] == "assistant" and not any(roles[1:])
    assert frames[0]["choices"][0]["delta"].get("content")
    return json.dumps(frames[0]["choices"][0]["delta"])


@trap("openai")
def each_choice_ends_with_a_reason_of_the_list(door):
    frames = streamed(door.chat("Speak.", stream=True, max_tokens=4, n=2))
    ends = [(frame["choices"][0]["index"], frame["choices"][0]["finish_reason"]) for frame in frames if frame["choices"][0]["finish_reason"]]
    assert sorted(index for index, _ in ends) == [0, 1] and {reason for _, reason in ends} <= FINISHES
    assert all(frame["choices"][0]["delta"] == {} for frame in frames if frame["choices"][0]["finish_reason"])
    return f"{ends}"


@trap("openai")
def text_is_never_cut_within_a_character(door):
    """Characters of two, three and four bytes, and of more than one token each where the vocabulary doesn't have them."""
    asked = {"structured_outputs": {"regex": WIDE}, "max_tokens": 100, "seed": 1}
    said = [frame["choices"][0]["text"] for frame in streamed(door.complete(door.prompt, stream=True, **asked))]
    assert re.fullmatch(WIDE, "".join(said)) and "".join(said) == text_of(door.complete(door.prompt, **asked))
    return f"{said}"


@trap("OpenAI's API")
def a_stop_string_is_not_shown_not_even_its_beginning(door):
    plain = text_of(door.complete(door.prompt, max_tokens=24, temperature=0, ignore_eos=True))
    stop = plain[6:10]
    whole, frames = both(door, max_tokens=24, temperature=0, ignore_eos=True, stop=stop)
    assert whole["choices"][0]["text"] == plain[:plain.index(stop)] and whole["choices"][0]["finish_reason"] == "stop"
    assert "".join(frame["choices"][0]["text"] for frame in frames) == whole["choices"][0]["text"]
    return f"cut before {stop!r}"


# ------------------------------------------------------------------------------------ what requests hold

@trap("vllm bench", "presence is the proto's")
def nulls_are_as_good_as_nothing(door):
    plain = text_of(door.complete(door.prompt, max_tokens=4, seed=1))
    nulls = dict.fromkeys(["stop", "logprobs", "n", "user", "suffix", "stream", "stream_options", "logit_bias", "temperature", "top_p", "best_of", "echo",
                           "presence_penalty", "frequency_penalty"])
    assert text_of(door.complete(door.prompt, max_tokens=4, seed=1, **nulls)) == plain
    content_of(door.chat("Speak.", max_tokens=2, **dict.fromkeys(["tools", "tool_choice", "response_format", "top_logprobs", "max_completion_tokens", "seed"])))
    return f"{len(nulls) + 6} nulls"


@trap("everyone")
def unknown_members_are_passed_over(door):
    good(door.complete(door.prompt, max_tokens=1, unheard_of={"of": [1]}, x_vendor="y"))
    return "200"


@trap("OpenAI's API", NO_JSON)
def bookkeeping_members_are_taken(door):
    good(door.chat("Speak.", max_tokens=1, user="u", store=False, metadata={"a": "b"}, service_tier="auto", parallel_tool_calls=True, safety_identifier="s",
                   prompt_cache_key="k", verbosity="low"))
    return "user, store, metadata, service_tier, parallel_tool_calls, ..."


@trap("OpenAI's API")
def stop_is_a_text_or_a_list(door):
    whole = text_of(door.complete(door.prompt, max_tokens=20, temperature=0, ignore_eos=True))
    for stop in (whole[4], [whole[4]], ["\0no".strip("\0"), whole[4], None]):
        assert text_of(door.complete(door.prompt, max_tokens=20, temperature=0, ignore_eos=True, stop=stop)) == whole[:whole.index(whole[4])]
    return f"{whole[4]!r}, [{whole[4]!r}]"


@trap("vllm bench", "no chats")
def content_comes_in_parts(door):
    parts = [{"type": "text", "text": "Speak"}, {"type": "text", "text": "."}]
    asked = dict(max_tokens=4, seed=1)
    body = {"messages": [{"role": "user", "content": parts[:1]}], "max_completion_tokens": 4, "seed": 1, "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True}}
    assert streamed(door.ask("/v1/chat/completions", body))[-1]["usage"]
    assert content_of(door.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}], **asked}))
    return "text in 1 part, in 2 parts"


@trap("OpenAI's API", "one name: max_tokens")
def max_completion_tokens_is_max_tokens(door):
    for more in ({"max_completion_tokens": 3}, {"max_tokens": 3}, {"max_tokens": 3, "max_completion_tokens": 3}):
        assert good(door.chat("Speak.", ignore_eos=True, **more))["usage"]["completion_tokens"] == 3
    return "3 tokens each"


@trap("TGI")
def temperature_0_and_top_p_1_are_taken(door):
    texts = {text_of(door.complete(door.prompt, max_tokens=8, temperature=0, seed=seed, top_p=1)) for seed in range(3)}
    assert len(texts) == 1
    good(door.complete(door.prompt, max_tokens=1, temperature=0.0, top_p=1.0, top_k=-1, min_p=0))
    return "greedy: one text of 3 seeds"


def frames_by_default(door, path, asked):
    connection = door.connect()
    connection.request("POST", path, json.dumps({"model": door.model, "stream": True, "ignore_eos": True, **asked}), door.headers)
    answer = connection.getresponse()
    frames = 0
    while frames < 20:
        line = answer.readline()
        assert line, "it ended"
        frames += line.startswith(b"data: {")
    connection.close()  # and no worker goes on for it
    return f"{frames} frames, then left"


@trap("llama.cpp")
def a_completion_has_a_default_length(door):
    return frames_by_default(door, "/v1/completions", {"prompt": door.prompt})


@trap("OpenAI's API", "no chats")
def a_chat_goes_on_beyond_16_tokens_by_default(door):
    return frames_by_default(door, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Speak."}]})


@trap("vLLM with prefill apart")
def several_answers_to_one_prompt(door):
    several = good(door.complete(door.prompt, n=3, max_tokens=8, seed=5, temperature=1.5))
    alone = text_of(door.complete(door.prompt, max_tokens=8, seed=5, temperature=1.5))
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2] and several["choices"][0]["text"] == alone
    assert several["usage"]["prompt_tokens"] == len(door.ids)
    return "n = 3; the first is that of n = 1"


@trap("OpenAI's API", "a map of numbers")
def keys_of_logit_bias_are_strings(door):
    wanted, other = (str(one) for one in door.ids[:2])
    forced = good(door.complete(door.prompt, max_tokens=4, logit_bias={wanted: 100}, logprobs=0, ignore_eos=True))["choices"][0]
    assert len(set(forced["logprobs"]["tokens"])) == 1
    banned = good(door.complete(door.prompt, max_tokens=4, logit_bias={wanted: -100, other: 100}, logprobs=0, ignore_eos=True))["choices"][0]
    assert len(set(banned["logprobs"]["tokens"])) == 1 and banned["text"] != forced["text"]
    return f'{{"{wanted}": 100}}: {forced["text"]!r}; {{"{other}": 100}}: {banned["text"]!r}'


@trap("everyone")
def seeds_have_64_bits(door):
    """2^53 and the next integer are the same number in JavaScript."""
    texts = [text_of(door.complete(door.prompt, max_tokens=16, seed=seed, temperature=1.5, ignore_eos=True)) for seed in (2**53, 2**53 + 1, 2**53, 2**64 - 1)]
    assert texts[0] == texts[2] and len(set(texts)) == 3
    good(door.complete(door.prompt, max_tokens=1, seed=-1))
    return "2^53 and 2^53 + 1 differ"


@trap("aiperf")
def prompts_are_texts_ids_and_lists_of_them(door):
    asked = dict(max_tokens=4, temperature=0)
    text = text_of(door.complete(door.prompt, **asked))
    assert text_of(door.complete(door.ids, **asked)) == text_of(door.complete([door.prompt], **asked)) == text
    batch = good(door.complete([door.ids, [door.ids[-1]], door.ids], **asked))["choices"]
    assert [choice["index"] for choice in batch] == [0, 1, 2] and batch[0]["text"] == batch[2]["text"] == text
    return "text, ids, [text], [ids, ids, ids]"


@trap("aiperf", "no chats")
def messages_have_a_name_that_may_be_null(door):
    for name in (None, "Romeo"):
        content_of(door.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Speak.", "name": name}], "max_tokens": 2}))
    return "null, a name"


@trap("openai", "no chats")
def answers_are_taken_back_as_history(door):
    """As the package dumps them: with all their nulls."""
    said = {"role": "assistant", "content": "I speak.", "refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None}
    messages = [{"role": "user", "content": "Speak."}, said, {"role": "user", "content": "More."}]
    content_of(door.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 2}))
    return "refusal, annotations, audio, function_call, tool_calls: null"


@trap("LangChain", "no chats")
def tools_may_be_none_of_them(door):
    content_of(door.chat("Speak.", max_tokens=2, tools=[], tool_choice="none"))
    content_of(door.chat("Speak.", max_tokens=2, tools=None, tool_choice=None, response_format={"type": "text"}))
    return "[], null"


@trap("LangChain.js", NO_JSON)
def whole_numbers_may_be_written_as_fractions(door):
    assert good(door.complete(door.prompt, max_tokens=2.0, n=1.0, ignore_eos=True))["usage"]["completion_tokens"] == 2
    return "max_tokens 2.0"


@trap("everyone", "no chats: a client renders")
def no_second_bos_where_the_template_writes_one(door):
    tokens = good(door.ask("/tokenize", {"model": door.model, "messages": [{"role": "user", "content": "Speak."}]}))["tokens"]
    assert tokens[0] != tokens[1]
    return f"begins with {tokens[:2]}"


@trap("everyone", "no chats")
def a_chats_prompt_is_counted_behind_its_template(door):
    counted = good(door.ask("/tokenize", {"model": door.model, "messages": [{"role": "user", "content": "Speak."}]}))["count"]
    assert good(door.chat("Speak.", max_tokens=1))["usage"]["prompt_tokens"] == counted > len(good(door.ask("/tokenize", {"model": door.model, "prompt": "Speak."}))["tokens"])
    return f"{counted} tokens"


# -------------------------------------------------------------------------------------------- logprobs

@trap("OpenAI's API")
def logprobs_of_chats_have_bytes(door):
    choice = good(door.chat("Speak.", max_tokens=6, logprobs=True, top_logprobs=2))["choices"][0]
    content = choice["logprobs"]["content"]
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in content)
    said = bytes(byte for token in content for byte in token["bytes"]).decode()
    assert said.startswith(choice["message"]["content"])
    return f"{len(content)} tokens, 2 likeliest each"


@trap("OpenAI's API")
def logprobs_of_completions_have_their_old_shape(door):
    scored = good(door.complete(door.prompt, max_tokens=4, logprobs=2, echo=True, ignore_eos=True))["choices"][0]
    logprobs = scored["logprobs"]
    assert len({len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}) == 1
    assert logprobs["token_logprobs"][0] is None and logprobs["text_offset"][0] == 0 and scored["text"].startswith(door.prompt)
    return "tokens, token_logprobs, top_logprobs, text_offset; echo: null first"


@trap("OpenAI's API")
def logprobs_may_be_asked_for_without_others(door):
    assert len(good(door.complete(door.prompt, max_tokens=3, logprobs=0, ignore_eos=True))["choices"][0]["logprobs"]["token_logprobs"]) == 3
    assert good(door.chat("Speak.", max_tokens=2, logprobs=False, top_logprobs=None))["choices"][0]["logprobs"] is None
    return "0, false"


# ---------------------------------------------------------------------------------------------- errors

@trap("TGI")
def errors_have_openais_shape(door):
    status, code, param = door.complete(door.prompt, temperature=-1).error
    assert (status, code, param) == (400, "invalid_sampling", "temperature")
    return f"{status} {code}, param {param}"


@trap("openai")
def a_wrong_model_is_404_and_names_those_that_are(door):
    reply = door.complete(door.prompt, model="gpt-4")
    assert reply.error == (404, "model_not_found", "model") and door.model in reply.json["error"]["message"]
    return reply.json["error"]["message"][:60]


@trap("openai")
def too_long_is_context_length_exceeded(door):
    assert door.complete(door.prompt, max_tokens=10**6).error[:2] == (400, "context_length_exceeded")
    return "400 context_length_exceeded"


@trap("openai", "no status that a library sends again but UNAVAILABLE")
def nothing_invites_a_retry_that_cannot_help(door):
    replies = [door.complete(door.prompt, n=0), door.complete(door.prompt, model="x"), door.ask("/v1/none"), door.complete(door.prompt, {"x-request-timeout-ms": "1"}, max_tokens=1000, ignore_eos=True)]
    assert all(reply.status not in (408, 409, 429) and (reply.status < 500 or reply.headers["x-should-retry"] == "false") for reply in replies)
    return ", ".join(str(reply.status) for reply in replies)


@trap("everyone")
def a_bad_stream_request_has_a_status_of_its_own(door):
    reply = door.complete(door.prompt, stream=True, top_p=7)
    assert reply.error[0] == 400 and reply.headers["content-type"].startswith("application/json")
    return "400, JSON"


@trap("openai")
def an_error_within_a_stream_is_a_frame(door):
    reply = door.complete(door.prompt, {"x-request-timeout-ms": "500"}, stream=True, n=16, max_tokens=1500, ignore_eos=True, stop=["no such text"])
    last = reply.frames[-1]
    assert reply.status == 200 and set(last["error"]) == {"message", "type", "param", "code"} and last["error"]["code"] == "deadline"
    return "data: {\"error\": ... deadline}, data: [DONE]"


@trap("SDKs", "messages, not connections, are refused")
def a_connection_goes_on_behind_an_error(door):
    connection = door.connect()
    statuses = []
    for body in ({"prompt": 5}, {"prompt": door.prompt, "max_tokens": 1, "model": door.model}, {}):
        connection.request("POST", "/v1/completions", json.dumps(body), door.headers)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    assert statuses == [400, 200, 400]
    return f"{statuses} on one connection"


@trap("everyone")
def what_is_not_offered_says_so(door):
    replies = [door.ask("/v1/embeddings", {"input": "a"}), door.chat([{"type": "image_url", "image_url": {"url": "x"}}]), door.complete(door.prompt, suffix="b")]
    assert [reply.error[:2] for reply in replies] == [(400, "unsupported_parameter")] * 3
    return "embeddings, images, suffix: 400 unsupported_parameter"


@trap("SDKs")
def unknown_paths_and_methods_answer_in_json(door):
    assert door.ask("/v1/nothing").error[:2] == (404, "not_found") and door.ask("/v1/completions").error[:2] == (405, "method_not_allowed")
    return "404 not_found, 405 method_not_allowed"


# -------------------------------------------------------------------------------------------- transport

@trap("openai")
def request_ids_are_taken_made_and_told(door):
    assert door.complete(door.prompt, {"x-request-id": "my-own.1"}, max_tokens=1).headers["x-request-id"] == "my-own.1"
    made = [door.complete(door.prompt, max_tokens=1).headers["x-request-id"], door.complete(door.prompt, n=0).headers["x-request-id"]]
    assert all(made) and made[0] != made[1]
    return made[0]


@trap("openai")
def headers_of_sdks_are_passed_over(door):
    headers = {"authorization": "Bearer none", "openai-organization": "o", "openai-project": "p", "x-stainless-retry-count": "0", "x-stainless-lang": "python",
               "user-agent": "OpenAI/Python", "accept": "application/json", "accept-encoding": "gzip, deflate, br"}
    reply = door.complete(door.prompt, {**headers, **door.headers}, max_tokens=1)
    good(reply)
    assert "content-encoding" not in reply.headers
    return "authorization, openai-*, x-stainless-*, accept-encoding"


@trap("curl", NO_JSON)
def the_content_type_must_be_json(door):
    """Forms and scripts of any page in a browser may send the others."""
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"):
        good(door.complete(door.prompt, {"content-type": kind}, max_tokens=1))
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=b", ""):
        refused = door.complete(door.prompt, {"content-type": kind}, max_tokens=1)
        assert refused.error[:2] == (415, "unsupported_media_type") and "Content-Type: application/json" in refused.json["error"]["message"]
    return "415 for curl's x-www-form-urlencoded"


@trap("Ollama, MCP servers", "browsers speak no gRPC")
def names_of_other_machines_are_refused(door):
    """A page's own name may come to mean 127.0.0.1 (DNS rebinding), where a server on loopback asks for no key."""
    if "authorization" in door.headers or not door.address.startswith("127."):
        return "has keys"
    for host in ("localhost", "LOCALHOST:80", "a.localhost", "127.0.0.1:1", "127.9.9.9", "[::1]:80"):
        assert door.ask("/v1/models", headers={"host": host}).status == 200, host
    for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0:80", "[::2]"):
        assert door.ask("/v1/models", headers={"host": host}).error[:2] == (403, "host_not_allowed"), host
    for origin in ("https://evil.example", "null", "http://evil.example:8000"):
        assert door.complete(door.prompt, {"origin": origin}, max_tokens=1).error[:2] == (403, "origin_not_allowed"), origin
    good(door.complete(door.prompt, {"origin": "http://localhost:3000"}, max_tokens=1))
    return "403 for others' names and pages"


@trap("curl", FRAMING)
def expect_100_continue(door):
    answer = raw_http.exchange(door.address, raw_http.post("/v1/completions", {"model": door.model, "prompt": door.prompt, "max_tokens": 1}, "Expect: 100-continue", *door.fields))
    assert answer.continued and answer.status == 200
    return "100, then 200"


@trap("SDKs that stream bodies", FRAMING)
def bodies_come_in_chunks(door):
    body = json.dumps({"model": door.model, "prompt": door.prompt, "max_tokens": 1}).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7))
    head = "".join(f"{field}\r\n" for field in ("Host: localhost", "Content-Type: application/json", "Transfer-Encoding: chunked", *door.fields)).encode()
    answer = raw_http.exchange(door.address, b"POST /v1/completions HTTP/1.1\r\n" + head + b"\r\n" + pieces + b"0\r\n\r\n")
    assert answer.status == 200, answer.body
    return "chunks of 7 bytes: 200"


@trap("everyone", "compression is refused below us")
def compressed_bodies_are_refused_by_name(door):
    import gzip
    answer = raw_http.exchange(door.address, raw_http.post("/v1/completions", gzip.compress(b'{"prompt":"a"}'), "Content-Encoding: gzip", *door.fields))
    assert answer.status == 400 and answer.error["code"] == "unsupported_parameter" and "gzip" in answer.error["message"]
    return answer.error["message"][:60]


@trap("guidellm, Kubernetes")
def health_is_there_before_the_first_request(door):
    statuses = {path: door.ask(path).status for path in ("/health", "/ready", "/live")}
    assert set(statuses.values()) == {200}, statuses
    return ", ".join(statuses)


@trap("Prometheus", "on the admin listener")
def metrics_and_version_are_there(door):
    assert re.search(rb"^# TYPE ", door.ask("/metrics").body, re.M) and good(door.ask("/version"))["version"]
    return "/metrics, /version"


@trap("vLLM's clients")
def tokenize_and_detokenize_have_vllms_shape(door):
    told = good(door.ask("/tokenize", {"model": door.model, "prompt": door.prompt}))
    assert told["count"] == len(told["tokens"]) and told["max_model_len"] > 0
    assert door.prompt in good(door.ask("/detokenize", {"model": door.model, "tokens": told["tokens"]}))["prompt"]
    return json.dumps(told)


@trap("vllm bench")
def its_whole_body_is_taken(door):
    body = {"model": door.model, "prompt": door.ids, "repetition_penalty": 1.0, "max_tokens": 4, "logprobs": None, "stream": True, "temperature": 0.0, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    frames = streamed(door.ask("/v1/completions", body, {"x-request-id": "bench-0"}))
    assert frames[-1]["usage"]["completion_tokens"] == 4 and all(frame["choices"][0]["text"] is not None for frame in frames[:-1])
    return "4 tokens"


@trap("aiperf")
def ignore_eos_and_min_tokens(door):
    """For a model that would end at once: its end is nearly certain."""
    ends = [door.ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"] for text in ENDS]
    bias = {str(ids[0]): 100 for ids in ends if len(ids) == 1}
    counts = [good(door.complete(door.prompt, max_tokens=9, logit_bias=bias, **more))["usage"]["completion_tokens"] for more in ({}, {"ignore_eos": True}, {"min_tokens": 9})]
    assert counts[0] <= 1 and counts[1:] == [9, 9], counts
    return f"{counts[0]}, with either {counts[1]}"


@trap("everyone")
def a_deadline_ends_it_in_time(door):
    begin = time.monotonic()
    reply = door.complete(door.prompt, {"x-request-timeout-ms": "100"}, n=16, max_tokens=1500, ignore_eos=True)
    assert reply.error[:2] == (504, "deadline") and time.monotonic() - begin < 60
    return "504 deadline"
