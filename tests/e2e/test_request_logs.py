"""A request by its client's id, in the logs of every process that handled it."""
from harness import GOLDEN, failpoint, wait_until

PROMPT = [20 + i for i in range(100)]


def test_the_clients_id_is_in_all_three_logs(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"log-level": "debug"})
    connect(cluster).generate(PROMPT, request_id="r0", max_tokens=4, ignore_eos=True)
    numbers = set()
    for name, said in (("router", "request ended"), ("prefill-0", "prefill ended"), ("decode-0", "sequence ended")):
        def lines():
            return [line for line in (cluster.folder / "logs" / f"{name}.log").read_text().splitlines() if " req=r0 " in line]
        wait_until(f"{name} says: {said}", lambda: any(f'msg="{said}"' in line for line in lines()), 20)
        with_id = [line for line in lines() if " id=" in line]
        assert len(with_id) >= 2, "where it comes and where it goes"
        numbers |= {line.split(" id=")[1].split()[0] for line in with_id}
    assert len(numbers) == 1, numbers


def test_one_that_ends_with_its_first_token_has_finished(start_cluster, connect):
    """The decode worker alone reports it here: else the router's Release may be faster than what it hears of the prefill worker."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"log-level": "debug"},
                            process_environment={"prefill-0": failpoint("worker.send_tokens", "fail@*")})
    client = connect(cluster)
    first = client.generate(PROMPT, temperature=0, max_tokens=2, ignore_eos=True).ids[0]
    client.generate(PROMPT, request_id="r1", temperature=0, max_tokens=2, ignore_eos=True, stop_ids=[first])
    log = cluster.folder / "logs" / "decode-0.log"

    def ends():
        return [line for line in log.read_text().splitlines() if 'msg="sequence ended"' in line and " req=r1 " in line]
    wait_until("it has ended", ends, 20)
    assert len(ends()) == 1 and " end=finished " in ends()[0], ends()
