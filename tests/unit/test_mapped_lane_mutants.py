"""test_mapped_lane catches each mutant of the rules by which the lane cuda is taken, tested and left."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
import mutants  # noqa: E402

LANE, LINK, REMOTE = (f"common/kv/transport/{name}.c" for name in ("mapped_lane", "mapped_link", "remote"))
BASE = ("assert", "clock", "failpoint", "log", "rng", "status", "str", "utf8", "domain/kv_layout", "domain/link_model", "domain/model_shape")

# name: what it leaves out, file, old text, new text; the old text occurs exactly once.
MUTANTS = {
    "untested": ("a path isn't tested", LINK, "    else if (!good)\n", "    else if (false)\n"),
    "any_sums": ("one piece decides", LINK, "good &= sums[i] ==", "good = sums[i] =="),
    "old_bytes": ("an earlier test's bytes pass", LINK, "i < KV_PROBE_PIECES; i++)\n        kv_stage_in(", "i < 0; i++)\n        kv_stage_in("),
    "own_pattern": ("the test overwrites the own pattern", LINK, "probe_offset + KV_PROBE_BYTES;", "probe_offset;"),
    "two_tests": ("two pairings are tested in one room", LINK, "lane->tested ? NULL : kv_staging_take", "kv_staging_take"),
    "test_waits": ("the test waits for the device", LINK, "link->state == MAPPED_CLEARS && kv_stage_done(link->stage)", "link->state == MAPPED_CLEARS && (kv_stage_wait(link->stage), true)"),
    "other_runs": ("runs of any size are taken", LINK, "peer->multiple = KV_MOVE_UNIT;", "peer->multiple = 1;"),
    "folder": ("two may take a name at once", LANE, "flock(fd, LOCK_EX | LOCK_NB) != 0", "false"),
    "card_waits": ("a card's test has no limit", LINK, "reads && now_us >= link->late_us", "false"),
    "by_name": ("a lane that was asked for by name is replaced", REMOTE, "is_by_name(remote) || take_tcp(peer, NULL)", "take_tcp(peer, NULL)"),
    "no_next": ("no other lane is taken", REMOTE, "is_by_name(remote) || take_tcp(peer, NULL) != STATUS_OK", "true"),
    "secret": ("any secret will do", LANE, "!tcp_owner_knows(lane->tcp, frame.hello.admission, frame.hello.secret)", "false"),
    "machine": ("any machine will do", LINK, "number_at(address->rkey) != lane->machine", "false"),
    "strangers": ("strangers stay", LANE, "stranger->source.fd >= 0 && now_us >= stranger->accepted_us + HELLO_US", "false"),
    "stopped": ("an owner that is stopped is waited for", LINK, "link->state == MAPPED_ASKED && now_us >= link->late_us", "false"),
    "lands_late": ("bytes land after the close", LINK, "    else if (last)\n        (void)!copier->wait(copier->state, last);", "    else if (last)\n        ;"),
    "card_lands_late": ("bytes of a card land after the close", LINK, "    if (link->remote)\n        ucx_remote_stop(link->remote);", "    if (link->remote)\n        ;"),
    "fails_well": ("a burst that failed is good", LINK, "status == STATUS_OK ? KV_FAILURE_NONE : KV_FAILURE_UNREACHABLE", "KV_FAILURE_NONE"),
    "one_a_move": ("a kernel for each run", LINK, "count < KV_MOVES_AT_ONCE && read->next_run + count", "count < 1 && read->next_run + count"),
    "takes_names": ("a socket that is in use is replaced", LANE, "return dead && unlink(lane->name) == 0;", "return unlink(lane->name) == 0;"),
    "any_user": ("other users may connect", LANE, "fchmod(fd, 0600) == 0", "fchmod(fd, 0666) == 0"),
    "leaves_names": ("the socket's name is left", LANE, "        unlink(lane->name);\n    if (listens)", "        ;\n    if (listens)"),
}
DEFAULT = ("any_sums", "by_name")  # without --long
Mutant = collections.namedtuple("Mutant", "name why edits")


def test_every_mutant_is_caught(capsys):
    transport = sorted(str(path.relative_to(mutants.TOP)) for path in (mutants.TOP / "common/kv/transport").glob("*.c"))
    code = mutants.Code("mapped_lane", ["tests/unit/test_mapped_lane.c", *transport, *(f"common/base/{name}.c" for name in BASE)],
                        libraries=["-lcmocka", "-lucp", "-lucs", "-lisal", "-lxxhash", "-lpthread", "-lm"])

    def verdict(mutant):
        return mutant, mutants.first_failure(mutants.run(code.link(mutant.name, code.mutate(mutant.name, mutant.edits))))
    assert not mutants.LONG or not verdict(Mutant("unchanged", "", ()))[1]
    chosen = [Mutant(name, MUTANTS[name][0], [MUTANTS[name][1:]]) for name in (MUTANTS if mutants.LONG else DEFAULT)]
    assert not mutants.survivors(mutants.in_parallel(verdict, chosen), capsys)
