"""The traps of http_traps.py with an equivalent over gRPC, by the same names."""
import re
import time

import grpc
from client import pb, reason_of, request
from grpc_health.v1 import health_pb2, health_pb2_grpc
from http_traps import ENDS, WIDE

TRAPS = {}
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def trap(function):
    TRAPS[function.__name__] = function
    return function


def refused(door, timeout=60, **asked):
    """(status, reason, sentence) of an error."""
    try:
        list(door.stub.Generate(request(asked.pop("prompt", door.prompt), model=asked.pop("model", door.model), **asked), timeout=timeout))
    except grpc.RpcError as error:
        return error.code(), reason_of(error), error.details()
    raise AssertionError("it was taken")


@trap
def models_are_listed_and_told(door):
    models = door.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    assert all(model.name and model.context and model.vocab for model in models)
    return ", ".join(model.name for model in models)


@trap
def usage_has_its_three_counts(door):
    usage = door.generate(max_tokens=5, ignore_eos=True).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(door.ids), 5)
    return f"{usage.prompt_tokens} and {usage.completion_tokens}"


@trap
def no_usage_chunk_unless_asked(door):
    events = [event.WhichOneof("event") for event in door.stub.Generate(request(door.prompt, model=door.model, max_tokens=3), timeout=60)]
    assert events.count("usage") == 1 and set(events[:-3]) == {"delta"}
    return "Usage is an event of its own, once"


@trap
def the_usage_chunk_has_no_choices_and_is_last(door):
    events = [event.WhichOneof("event") for event in door.stub.Generate(request(door.prompt, model=door.model, max_tokens=3), timeout=60)]
    assert events[-3:] == ["finished", "usage", "timing"]
    return "finished, usage, timing"


@trap
def stream_and_whole_say_the_same(door):
    answer = door.generate(max_tokens=12, seed=7)
    once = door.stub.GenerateOnce(request(door.prompt, model=door.model, max_tokens=12, seed=7), timeout=60)
    assert (once.text, list(once.token_ids)) == (answer.text, answer.ids)
    return repr(answer.text[:24])


@trap
def each_choice_ends_with_a_reason_of_the_list(door):
    ends = {}
    for event in door.stub.Generate(request(door.prompt, model=door.model, max_tokens=4, n=2), timeout=60):
        if event.WhichOneof("event") == "finished":
            ends[event.finished.choice] = pb.FinishReason.Name(event.finished.reason)
    assert sorted(ends) == [0, 1] and "FINISH_REASON_UNSPECIFIED" not in ends.values()
    return f"{ends}"


@trap
def text_is_never_cut_within_a_character(door):
    asked = request(door.prompt, model=door.model, max_tokens=100, seed=1, constraint=pb.Constraint(regex=WIDE))
    said = [event.delta.text for event in door.stub.Generate(asked, timeout=60) if event.WhichOneof("event") == "delta"]
    assert re.fullmatch(WIDE, "".join(said)) and "".join(said) == door.stub.GenerateOnce(asked, timeout=60).text
    return f"{said}"


@trap
def a_stop_string_is_not_shown_not_even_its_beginning(door):
    plain = door.generate(max_tokens=24, temperature=0, ignore_eos=True).text
    cut = door.generate(max_tokens=24, temperature=0, ignore_eos=True, stop=[plain[6:10]])
    assert cut.text == plain[:plain.index(plain[6:10])] and cut.finished.reason == pb.FINISH_REASON_STOP_STRING
    return f"cut before {plain[6:10]!r}"


@trap
def unknown_members_are_passed_over(door):
    packed = request(door.prompt, model=door.model, max_tokens=1).SerializeToString() + bytes([0xFA, 0x3E, 3]) + b"new"  # field 1007
    call = door.channel.unary_stream("/baton.v1.Baton/Generate", request_serializer=lambda data: data, response_deserializer=pb.GenerateResponse.FromString)
    assert list(call(packed, timeout=60))
    return "field 1007"


@trap
def stop_is_a_text_or_a_list(door):
    whole = door.generate(max_tokens=20, temperature=0, ignore_eos=True).text
    for stop in ([whole[4]], ["no such", whole[4]]):
        assert door.generate(max_tokens=20, temperature=0, ignore_eos=True, stop=stop).text == whole[:whole.index(whole[4])]
    return f"[{whole[4]!r}]"


@trap
def temperature_0_and_top_p_1_are_taken(door):
    texts = {door.generate(max_tokens=8, temperature=0, top_p=1, seed=seed).text for seed in range(3)}
    assert len(texts) == 1
    return "greedy: one text of 3 seeds"


@trap
def a_completion_has_a_default_length(door):
    assert door.generate(ignore_eos=True).usage.completion_tokens == 16
    return "16"


@trap
def several_answers_to_one_prompt(door):
    asked = dict(max_tokens=8, seed=5, temperature=1.5)
    several = door.stub.GenerateOnce(request(door.prompt, model=door.model, n=3, **asked), timeout=60)
    assert len(several.others) == 2 and several.text == door.generate(**asked).text and several.usage.prompt_tokens == len(door.ids)
    return "n = 3; the first is that of n = 1"


@trap
def seeds_have_64_bits(door):
    texts = [door.generate(max_tokens=16, seed=seed, temperature=1.5, ignore_eos=True).text for seed in (2**53, 2**53 + 1, 2**53, 2**64 - 1)]
    assert texts[0] == texts[2] and len(set(texts)) == 3
    return "2^53 and 2^53 + 1 differ"


@trap
def prompts_are_texts_ids_and_lists_of_them(door):
    asked = dict(max_tokens=4, temperature=0)
    assert door.generate(**asked).text == door.generate(prompt=door.ids, **asked).text
    return "text, ids; one a call"


@trap
def logprobs_of_chats_have_bytes(door):
    answer = door.generate(max_tokens=6, logprobs=2)
    assert len(answer.logprobs) == len(answer.ids) and all(drawn <= 0 and len(top) == 2 for drawn, top in answer.logprobs)
    return "ids and logprobs, 2 likeliest each"


@trap
def logprobs_of_completions_have_their_old_shape(door):
    answer = door.generate(max_tokens=4, logprobs=2, prompt_logprobs=2, echo=True, ignore_eos=True)
    assert len(answer.prompt_logprobs) == len(door.ids) - 1 and answer.prompt.text == door.prompt
    return "echo, and the prompt's from its second token on"


@trap
def logprobs_may_be_asked_for_without_others(door):
    assert all(not top for _, top in door.generate(max_tokens=3, logprobs=0).logprobs)
    return "0"


@trap
def errors_have_openais_shape(door):
    code, reason, sentence = refused(door, temperature=-1)
    assert (code, reason) == (INVALID, "invalid_sampling") and " " in sentence
    return f"{code.name} {reason}"


@trap
def a_wrong_model_is_404_and_names_those_that_are(door):
    code, reason, sentence = refused(door, model="gpt-4")
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "model_not_found") and door.model in sentence
    return sentence[:60]


@trap
def too_long_is_context_length_exceeded(door):
    assert refused(door, max_tokens=10**6)[:2] == (INVALID, "context_length_exceeded")
    return "INVALID_ARGUMENT context_length_exceeded"


@trap
def a_bad_stream_request_has_a_status_of_its_own(door):
    assert refused(door, top_p=7)[:2] == (INVALID, "invalid_sampling")
    return "the call's status, before any event"


@trap
def an_error_within_a_stream_is_a_frame(door):
    for timeout in (0.5, 1, 2, 4):  # on a busy machine the first event comes late
        events = 0
        try:
            for _ in door.stub.Generate(request(door.prompt, model=door.model, n=16, max_tokens=1500, ignore_eos=True, stop=["no such text"]), timeout=timeout):
                events += 1
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        else:
            raise AssertionError("it ended well")
        if events:
            return f"DEADLINE_EXCEEDED behind {events} events"
    raise AssertionError("no event in 4 s")


@trap
def what_is_not_offered_says_so(door):
    call = door.channel.unary_unary("/baton.v1.Baton/Embed", request_serializer=lambda data: data, response_deserializer=lambda data: data)
    try:
        call(b"", timeout=20)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED
        return f"UNIMPLEMENTED {reason_of(error)}"
    raise AssertionError("it was taken")


@trap
def unknown_paths_and_methods_answer_in_json(door):
    call = door.channel.unary_unary("/nothing.Nobody/Nothing", request_serializer=lambda data: data, response_deserializer=lambda data: data)
    try:
        call(b"", timeout=20)
    except grpc.RpcError as error:
        assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNIMPLEMENTED, "unknown_method")
        return "UNIMPLEMENTED unknown_method"
    raise AssertionError("it was taken")


@trap
def request_ids_are_taken_made_and_told(door):
    named = door.stub.Generate(request(door.prompt, model=door.model, max_tokens=1, request_id="my-own.1"), timeout=60)
    made = door.stub.Generate(request(door.prompt, model=door.model, max_tokens=1), timeout=60)
    told = [dict(call.initial_metadata()).get("x-request-id") for call in (named, made)]
    assert told[0] == "my-own.1" and told[1]
    list(named), list(made)
    return told[1]


@trap
def headers_of_sdks_are_passed_over(door):
    assert list(door.stub.Generate(request(door.prompt, model=door.model, max_tokens=1), timeout=60, metadata=(("authorization", "Bearer none"), ("x-anything", "y"))))
    return "metadata: authorization, x-anything"


@trap
def health_is_there_before_the_first_request(door):
    stub = health_pb2_grpc.HealthStub(door.channel)
    for service in ("", "baton.v1.Baton"):
        assert stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status == health_pb2.HealthCheckResponse.SERVING
    return "grpc.health.v1: SERVING"


@trap
def tokenize_and_detokenize_have_vllms_shape(door):
    ids = door.stub.Tokenize(pb.TokenizeRequest(model=door.model, text=door.prompt), timeout=20).ids
    assert list(ids) == door.ids
    assert door.stub.Detokenize(pb.DetokenizeRequest(model=door.model, ids=ids, skip_special_tokens=True), timeout=20).text == door.prompt
    return f"{list(ids)}"


@trap
def its_whole_body_is_taken(door):
    answer = door.generate(prompt=door.ids, repetition_penalty=1.0, max_tokens=4, temperature=0.0, ignore_eos=True, request_id="bench-0")
    assert answer.usage.completion_tokens == 4
    return "4 tokens"


@trap
def ignore_eos_and_min_tokens(door):
    ends = [door.stub.Tokenize(pb.TokenizeRequest(model=door.model, text=text, add_special_tokens=False), timeout=20).ids for text in ENDS]
    bias = {ids[0]: 100.0 for ids in ends if len(ids) == 1}
    counts = [door.generate(max_tokens=9, logit_bias=bias, **more).usage.completion_tokens for more in ({}, {"ignore_eos": True}, {"min_tokens": 9})]
    assert counts[0] <= 1 and counts[1:] == [9, 9], counts
    return f"{counts[0]}, with either {counts[1]}"


@trap
def a_deadline_ends_it_in_time(door):
    begin = time.monotonic()
    code, _, _ = refused(door, timeout=0.1, n=16, max_tokens=1500, ignore_eos=True)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - begin < 60
    return "DEADLINE_EXCEEDED"
