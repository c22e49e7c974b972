"""A decode worker without a model, for tests of the router: registers, takes prompts, and sends tokens as fast as it is let."""
import concurrent.futures
import json
import pathlib
import queue
import re
import threading

import grpc
from generated import generated
from harness import GOLDEN

TOP = pathlib.Path(__file__).resolve().parents[2]
wp, wp_grpc = generated("worker")

VERSION = int(re.search(r"WORKER_PROTOCOL_VERSION (\d+)", (TOP / "common/net/membership/worker_message.h").read_text())[1])
MAX_TOKENS_FINISH = 4


def model_with_context(folder, context):
    """A folder for a router in front of it: the config of the tiny llama, with another context."""
    folder.mkdir()
    config = json.loads((GOLDEN / "llama/config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": context}))
    return folder


class FakeWorker(wp_grpc.WorkerServicer):
    def __init__(self, router, model, context, vocab, name="decode-0"):
        self.info = wp.WorkerInfo(version=VERSION, name=name, role=wp.ROLE_DECODE, incarnation=7, model=model, model_hash=1, layout_hash=2,
                                  numerics_id=3, block_tokens=32, block_count=1 << 20, context=context, vocab=vocab, max_sequences=1024)
        self.jobs, self.lock, self.up = {}, threading.Lock(), threading.Event()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.http2.max_ping_strikes", 0)])  # the router looks after it often
        wp_grpc.add_WorkerServicer_to_server(self, self.server)
        self.info.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()
        self.channel = grpc.insecure_channel(router)
        wp_grpc.RegistryStub(self.channel).RegisterWorker(wp.RegisterRequest(info=self.info), timeout=20)
        assert self.up.wait(20)

    def take(self, commands):
        for down in commands:
            with self.lock:
                if down.WhichOneof("command") == "decode":
                    self.jobs[down.decode.request] = [down.decode.attempt, 0, down.decode.sampling.max_tokens]
                else:
                    self.jobs.pop(down.release.request, None)
            self.work.put(True)

    def step(self):
        """One token for each job."""
        tokens = wp.Tokens()
        with self.lock:
            for request, job in list(self.jobs.items()):
                job[1] += 1
                finish = MAX_TOKENS_FINISH if job[1] == job[2] else 0
                tokens.tokens.add(request=request, attempt=job[0], index=job[1], id=100 + job[1] % 100, finish=finish)
                if finish:
                    del self.jobs[request]
        return tokens

    def Session(self, commands, context):
        self.work = queue.SimpleQueue()
        threading.Thread(target=self.take, args=(commands,), daemon=True).start()
        yield wp.SessionUp(hello=wp.Hello(info=self.info))
        self.up.set()
        while context.is_active():
            tokens = self.step()
            if tokens.tokens:
                yield wp.SessionUp(tokens=tokens)
            else:
                try:
                    self.work.get(timeout=0.2)
                except queue.Empty:
                    pass

    def stop(self):
        self.channel.close()
        self.server.stop(0).wait()
