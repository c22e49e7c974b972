"""Handoffs between workers whose KV pools are in the memory of a device (kernels/deferred): the same bytes as on the CPU, pulled over tcp
through bounded buffers, and computed again where the prefill worker is gone. The CPU touches no such memory, or the worker ends."""
from harness import GOLDEN, IN_TURNS

PROMPTS = [list(range(20, 20 + tokens)) for tokens in (17, 33, 70)]  # one block and a token; two; several chunks
ASKED = dict(max_tokens=6, ignore_eos=True, temperature=1, seed=4, logits_hash=True)
DECODES = ("decode-0", "decode-1")


def test_handoffs_between_devices(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", decode=2, flags=IN_TURNS,
                            settings={"chunk-tokens": 32, "kv-tokens": 1024, "block-tokens": 16, "prefix-cache": "false"},
                            process_environment={"prefill-0": {"BATON_DEVICE": "deferred"}, "decode-0": {"BATON_DEVICE": "deferred-late"},
                                                 "decode-1": {"BATON_DEVICE": "cpu"}})
    client = connect(cluster)

    def served_by_both():
        """Each answer has the same bytes, whoever gave it."""
        answers = {}
        for _ in range(8):
            for number, prompt in enumerate(PROMPTS):
                answer = client.generate(prompt, **ASKED)
                answers.setdefault(number, []).append((answer.ids, answer.hashes))
                seen.add(answer.timing.decode_worker)
            if seen == set(DECODES):
                break
        assert seen == set(DECODES)
        assert all(len(set(map(str, each))) == 1 for each in answers.values())
        return [each[0] for each in answers.values()]

    seen = set()
    handed_over = served_by_both()
    for name in DECODES:
        assert cluster.total(name, "baton_kv_bytes_moved_total", lane="tcp") > 0
        assert cluster.total(name, "baton_kv_reads_failed_total") == 0 and cluster.total(name, "baton_prompt_tokens_computed_total") == 0
    cluster.kill("prefill-0")
    seen.clear()
    assert served_by_both() == handed_over
    assert all(cluster.total(name, "baton_prompt_tokens_computed_total") > 0 for name in DECODES)
