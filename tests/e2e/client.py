"""A client as a user would write it: Python grpcio, with code made from the published proto and nothing else."""
import threading

import grpc
from generated import generated

pb, pb_grpc = generated("baton")

SAMPLING = {"temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "min_tokens", "ignore_eos", "presence_penalty", "frequency_penalty",
            "repetition_penalty", "logit_bias", "n"}
OUTPUT = {"logprobs", "prompt_logprobs", "echo"}


def request(prompt, stop=(), stop_ids=(), request_id="", logits_hash=False, priority=None, slo_class="", slo_objective=None, model="", constraint=None, **sampling):
    """prompt: text or a list of ids; constraint: a pb.Constraint; slo_objective: {"ttft_us": 1}."""
    output = {name: sampling.pop(name) for name in OUTPUT & set(sampling)}
    assert not set(sampling) - SAMPLING, sampling
    message = pb.GenerateRequest(request_id=request_id, model=model, priority=priority, slo_class=slo_class,
                                 slo_objective=slo_objective, constraint=constraint, sampling=pb.Sampling(**sampling),
                                 stop=pb.Stop(strings=stop, token_ids=stop_ids),
                                 output=pb.Output(return_timing=True, return_logits_hash=logits_hash, **output))
    if isinstance(prompt, str):
        message.text = prompt
    else:
        message.token_ids.ids.extend(prompt)
    return message


def told(logprobs):
    """(of the drawn token, [(id, logprob) of the likeliest])"""
    assert len(logprobs.top_ids) == len(logprobs.top)
    return logprobs.drawn, list(zip(logprobs.top_ids, logprobs.top))


class Answer:
    """All of one streamed answer, with the checks that hold for every answer."""

    def __init__(self):
        self.text, self.ids, self.hashes, self.logprobs, self.prompt_logprobs = "", [], [], [], []
        self.prompt = None
        self.finished = self.usage = self.timing = None

    def take(self, response):
        event = response.WhichOneof("event")
        if event == "prompt_logprobs":  # before the answer, after the prompt, in order
            assert not self.ids and self.finished is None
            assert response.prompt_logprobs.first_index == 1 + len(self.prompt_logprobs)
            self.prompt_logprobs += map(told, response.prompt_logprobs.logprobs)
        elif event == "prompt":
            assert self.prompt is None and not self.ids and not self.prompt_logprobs
            self.prompt = response.prompt
        elif event == "delta":
            assert self.finished is None
            if response.delta.token_ids:
                assert response.delta.first_index == len(self.ids)
            self.text += response.delta.text
            self.ids += response.delta.token_ids
            assert all(response.delta.logits_hashes), "one that isn't computed would be equal to any other"
            self.hashes += response.delta.logits_hashes
            self.logprobs += map(told, response.delta.logprobs)
        else:
            assert getattr(self, event) is None, f"{event} came twice"
            setattr(self, event, getattr(response, event))

    def check(self):
        assert self.finished and self.usage and self.timing
        assert self.usage.completion_tokens == len(self.ids)
        return self


class Client:
    def __init__(self, address):
        # A channel of its own: a shared one may repeat, while it pauses between dials, what a server's former life answered.
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = pb_grpc.BatonStub(self.channel)

    def close(self):
        self.channel.close()

    def start(self, prompt, timeout=120, **options):
        """The running call: iterate over it, or cancel() it."""
        return self.stub.Generate(request(prompt, **options), timeout=timeout)

    def generate(self, prompt, timeout=120, **options):
        answer = Answer()
        for response in self.start(prompt, timeout, **options):
            answer.take(response)
        return answer.check()

    def generate_all(self, requests):
        """Runs [(prompt, options), ...] at the same time; the answers in that order. The first error is raised."""
        answers = [None] * len(requests)

        def one(index, prompt, options):
            try:
                answers[index] = self.generate(prompt, **options)
            except Exception as error:  # told to the test below
                answers[index] = error

        threads = [threading.Thread(target=one, args=(i, prompt, options)) for i, (prompt, options) in enumerate(requests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def reason_of(error):
    """The stable code of an error: the trailing metadata `baton-reason`."""
    return dict(error.trailing_metadata() or ()).get("baton-reason", "")
