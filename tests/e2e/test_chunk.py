"""The default length of a prefill worker's steps: as long as this machine needs to be busy, as it measured."""
import math
import re

from harness import GOLDEN

PROMPT = [5 + i % 300 for i in range(1100)]


def test_a_prefill_worker_fills_steps_to_the_measured_length(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", settings={"chunk-tokens": 0, "prefix-cache": "false"})
    log = (cluster.folder / "logs/prefill-0.log").read_text()
    measured = re.search(r'msg="rows that fill a step are measured" rows=(\d+) read_gbs=(\S+) peak_gflops=(\d+) chunk_tokens=(\d+)', log)
    rows, chunk = int(measured[1]), int(measured[4])
    assert float(measured[2]) > 0 and (rows > 0) == (int(measured[3]) > 0)
    assert chunk == (min(max(-(-rows // 32) * 32, 128), 512) if rows else 512)
    assert re.search(rf'msg="sizes".* chunk_tokens={chunk} ', log)
    assert re.search(r'msg="sizes".* chunk_tokens=512 ', (cluster.folder / "logs/decode-0.log").read_text())
    connect(cluster).generate(PROMPT, max_tokens=2, ignore_eos=True)
    assert cluster.total("prefill-0", "baton_steps_total") == math.ceil(len(PROMPT) / chunk)
