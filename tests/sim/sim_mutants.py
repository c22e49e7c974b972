"""Mutants that the simulation must catch: the real code with one rule left out or reversed, and the invariant that must break then.

M_ and W_ are the mutants and the failing readings of the Spin model of this protocol; the others are rules that only the code has. `ignore`: invariants
that are not looked at, because they say at once that a rule is broken, and the case is about what comes of it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    why: str
    edits: tuple  # edits (file, old text, new text); the old text occurs exactly once
    breaks: frozenset
    ignore: str = ""
    first: int = 1    # the seed to begin with: near one that catches a rare mutant


def mutant(name, why, breaks, *edits, ignore="", first=1):
    return Mutant(name, why, edits, frozenset(breaks.split()), ignore, first)


SOURCE = "common/kv/handoff/source.c"
SINK = "common/kv/handoff/sink.c"
PULL = "common/kv/handoff/sink_pull.c"
STATE = "common/kv/handoff/sink_state.h"
LIFE = "router/planner/request_life.c"
BREAKER = "router/planner/breaker.c"
BUDGET = "router/planner/retry_budget.c"

GENERATION = " && source->generation == ref.generation &&"
INCARNATION = "ref.incarnation != table->config.incarnation || "
REQUEST = "&&\n                source->request == request;"
READS = "bool reads = source && message->attempt >= source->reader;"
CONFIRMS = "source->state == SOURCE_COMPLETE && message->attempt >= source->reader"
MEMO = "memo->attempt == message->attempt &&"
ASKS_CONFIRM = "    sink->state = SINK_CONFIRMING;\n    sink_ask(table, now_us, sink, PEER_CONFIRM, out);\n"
ON_HELD = "static void on_held(struct sink_table *table, struct sink *sink, struct sink_actions *out)"
ORPHAN = "    if (sink->reading) {\n        sink->state = SINK_ORPHAN;\n        sink->reason = reason;\n        return;\n    }\n"
UP_AGAIN = ("        sink->down_since_us = UINT64_MAX;\n        /* Only the stream of the last Subscribe may read. */\n"
            "        bool reads = sink->state == SINK_READING || sink->state == SINK_VERIFYING;\n"
            "        sink_ask(table, now_us, sink, reads ? PEER_SUBSCRIBE : sink_question_of(sink), out);\n")
SESSION_ENDS = "            sink_end(table, &table->slots[i], SINK_REASON_NONE, out);\n"
REREAD = (PULL, UP_AGAIN, "        sink->down_since_us = UINT64_MAX;\n        if (sink->state == SINK_CONFIRMING) {\n            sink->state = SINK_READING;\n"
            "            sink->read_blocks = 0;\n            sink->beat_us = now_us + table->config.heartbeat_us;\n"
            "            advance(table, now_us, sink, out);\n            continue;\n        }\n"
            "        sink_ask(table, now_us, sink, sink->state == SINK_READING ? PEER_SUBSCRIBE : sink_question_of(sink), out);\n")
NO_READER = ((SOURCE, READS, "bool reads = source;"), (SOURCE, CONFIRMS, "source->state == SOURCE_COMPLETE"), (SOURCE, MEMO, ""))

MODEL = [
    mutant("M_NO_CONFIRM", "a sequence runs once its bytes are there", "bytes",
           (PULL, ASKS_CONFIRM, "    (void)now_us;\n    on_held(table, sink, out);\n"),
           (PULL, "static void ask_confirm(", ON_HELD + ";\nstatic void ask_confirm("), ignore="confirm"),
    mutant("M_NO_GENERATION", "any use of a slot will do", "fence", (SOURCE, GENERATION, " &&")),
    mutant("M_NO_INCARNATION", "any incarnation will do", "fence", (SOURCE, INCARNATION, "")),
    mutant("M_NO_ATTEMPT", "the router hears older attempts", "old", (LIFE, "request_life_works(life) && attempt == life->attempt", "request_life_works(life) && attempt")),
    mutant("M_CHECK_LATE", "confirmed before it is compared", "bytes",
           (PULL, "        if (!sink->verifying &&\n            (sink->verified_blocks == sink->block_count || !sink->summed_blocks))\n"
            "            ask_confirm(", "        ask_confirm("), ignore="confirm,runs,terminal"),
    mutant("M_CHECK_SOON", "compared before it is read", "bytes",
           (PULL, "sink->read_blocks < sink->summed_blocks ? sink->read_blocks : sink->summed_blocks;", "sink->summed_blocks;")),
    mutant("M_RESERVE_EARLY", "decode reserves before prefill has room", "waits",
           (LIFE, "        send(life, LIFE_SEND_PREFILL, prefill, out);\n",
            "        send(life, LIFE_SEND_PREFILL, prefill, out);\n        if (decode)\n            send(life, LIFE_SEND_DECODE, decode, out);\n"),
           (LIFE, "if (life->decode && life->state == REQUEST_DECODE && !life->decode_over)\n        send(life, LIFE_SEND_RELEASE, life->decode, out);\n}",
            "if (life->decode)\n        send(life, LIFE_SEND_RELEASE, life->decode, out);\n}"),
           (STATE, "    bool has_handle;\n", "    bool has_handle, early;\n"),
           (SINK, "                          .peer = peer,\n", "                          .peer = peer,\n                          .early = !decode->has_handle && decode->peer,\n"),
           (SINK, "    if (sink && sink->attempt >= decode->attempt) {\n",
            """    if (sink && sink->attempt == decode->attempt && sink->early && decode->has_handle) {
        bool has_room = sink->state == SINK_READING;
        struct sink_peer *taken = sink_peer_take(table, decode->peer, out);
        if (!taken)
            return;
        fill(sink, decode, taken);
        sink->heard_us = now_us;
        if (sink->peer->stream != STREAM_UP)
            sink->down_since_us = now_us;
        if (sink->peer->stream == STREAM_DOWN && sink->peer->retry_us <= now_us)
            sink_peer_connect(table, sink->peer, out);
        if (has_room) {
            sink->state = SINK_READING;
            sink_peer_pair(sink->peer, out);
        }
        sink_ask(table, now_us, sink, has_room ? PEER_SUBSCRIBE : PEER_EXTEND, out);
        return;
    }
    if (sink && sink->attempt >= decode->attempt) {
"""),
           (SINK, "    if (!sink->has_handle) {\n        sink->state = SINK_RUNNING;\n",
            """    if (sink->early) {
        memcpy(sink->local, blocks, block_count * sizeof *sink->local);
        sink->state = SINK_READING;
        return;
    }
    if (!sink->has_handle) {
        sink->state = SINK_RUNNING;
"""),
           ("tests/sim/sim_decode_step.c", "    uint32_t index = job->emitted_count + 1;\n",
            "    uint32_t index = job->emitted_count + 1;\n    if (m->has_handle && !job->source_serial)\n"
            "        job->source_serial = sim->requests[m->request].handle.serial;\n"),
           ignore="order"),
    mutant("M_LANDING_FREED", "a sink that ends gives back blocks that are landing", "landing",
           (SINK, ORPHAN, ""), (PULL, "    ASSERT(sink && sink->reading);", "    if (!sink || !sink->reading)\n        return;")),
    mutant("W_END_FORGETS", "a source whose answer ends with its first token is forgotten at once", "runs terminal",
           (SOURCE, "    table->counters.completed++;\n    publish(source, out);\n",
            "    table->counters.completed++;\n    publish(source, out);\n    if (completion->finish)\n        end(table, source, SOURCE_RELEASED, out);\n")),
    mutant("W_EXTEND_LATE", "the lease is extended from the reservation on, not from Decode on", "runs terminal",
           (SINK, "    sink_ask(table, now_us, sink, PEER_EXTEND, out);\n}", "    sink->beat_us = UINT64_MAX;\n}"),
           (SINK, "        if (!sink_pulls(sink))\n            continue;\n        next_us", "        if (!sink_pulls(sink) || sink->state == SINK_QUEUED)\n            continue;\n        next_us"),
           (SINK, "        if (!sink_pulls(sink))\n            continue;\n        bool down",
            "        if (!sink_pulls(sink) || sink->state == SINK_QUEUED)\n            continue;\n        bool down"),
           (SINK, "    sink_peer_pair(sink->peer, out);\n    sink_ask(table, now_us, sink, PEER_SUBSCRIBE, out);",
            "    sink->heard_us = now_us;\n    sink_peer_pair(sink->peer, out);\n    sink_ask(table, now_us, sink, PEER_SUBSCRIBE, out);")),
    mutant("W_REGIVE_COUNTS", "giving a handle to another reader counts as a run", "runs terminal limits",
           (LIFE, "static void give_again(struct request_life *life, struct cause cause, struct life_actions *out)\n{\n",
            "static void give_again(struct request_life *life, struct cause cause, struct life_actions *out)\n{\n    life->runs++;\n")),
    mutant("W_SENT_COUNTS", "a Prefill that was never opened counts as a run", "runs terminal",
           (LIFE, "        send(life, LIFE_SEND_PREFILL, prefill, out);\n", "        count_run(life);\n        send(life, LIFE_SEND_PREFILL, prefill, out);\n"),
           (LIFE, "    count_run(life); /* a prefill that is never opened costs no run */\n", "")),
    mutant("W_END_SILENT", "decode leaves it to prefill to report an end with the first token", "waits",
           (PULL, "        struct sink_action *action = sink_append_for(out, SINK_SEND_TOKEN, sink);", "        struct sink_action nobody, *action = &nobody;")),
    mutant("W_EXTEND_UNANSWERED", "Extend is not answered", "runs terminal",
           (SOURCE, "    case PEER_EXTEND:\n        if (!reads)\n            break;\n        extend(table, now_us, peer, source, message->attempt, out);\n        return;\n",
            "    case PEER_EXTEND:\n        if (reads)\n            source->lease_end_us = now_us + table->config.lease_us;\n        return;\n")),
    mutant("W_REREAD", "after a lost stream all is read again, though Confirm was sent", "confirm", REREAD),
    mutant("W_REREAD_SHOW_1", "and what comes of it", "bytes landing", REREAD, ignore="confirm,runs,terminal"),
    mutant("W_NO_READER", "held for whoever asks", "reader", *NO_READER),
    mutant("W_NO_READER_SHOW_1", "and what comes of it", "bytes", *NO_READER, ignore="reader,old,confirm,runs,terminal,waits", first=87000),
]

CODE = [
    mutant("no_request_in_fence", "a handle is good for any request", "fence", (SOURCE, REQUEST, ";\n    (void)request;")),
    mutant("memo_any_reader", "held is repeated to any reader", "reader", (SOURCE, MEMO, "")),
    mutant("no_memo", "held is not remembered", "runs terminal", (SOURCE, "handle_ref_equal(memo->ref, message->ref))", "false)")),
    mutant("confirm_any_state", "held before the prompt is computed", "bytes confirm reader",
           (SOURCE, CONFIRMS, "message->attempt >= source->reader"), (PULL, "    } else if (sink->complete) {\n",
            "    } else if (sink->read_blocks && !sink->complete) {\n        ask_confirm(table, now_us, sink, out);\n    } else if (sink->complete) {\n")),
    mutant("older_reader_releases", "an older reader's Release ends the handle", "reader",
           (SOURCE, "        if (reads)\n            end(table, source, SOURCE_RELEASED, out);", "        if (source)\n            end(table, source, SOURCE_RELEASED, out);")),
    mutant("older_subscribes", "an older attempt may subscribe", "reader",
           (SOURCE, "        if (!reads)\n            break;\n        source->reader", "        if (!source)\n            break;\n        source->reader")),
    mutant("older_extends", "an older attempt extends the lease", "reader",
           (SOURCE, "        if (!reads)\n            break;\n        extend(", "        if (!source)\n            break;\n        extend(")),
    mutant("tail_early", "the tail block is ready before Complete", "bytes",
           (SOURCE, "uint32_t whole = tokens - tokens % table->config.block_tokens;",
            "uint32_t whole = tokens % 4 ? tokens - tokens % 4 + 4 : tokens;\n    if (whole > source->token_count)\n        whole = source->token_count;")),
    mutant("no_lease", "a lease never ends", "free",
           (SOURCE, "if (source->state >= SOURCE_OPENED && source->lease_end_us <= now_us)", "if (false)"),
           (SOURCE, "if (source->state >= SOURCE_OPENED && source->lease_end_us < next_us)", "if (false)")),
    mutant("granted_to_any_peer", "the byte plane serves whoever knows a handle", "grant", (SOURCE, "!source->subscribed || source->subscriber != peer", "!source->subscribed")),
    mutant("granted_after_the_end", "a grant outlives the use of its slot", "grant", (SOURCE, "source->state < SOURCE_OPENED || source->generation != generation", "source->state < SOURCE_OPENED || !generation")),
    mutant("granted_any_block", "a subscriber may read all of the pool", "grant", (SOURCE, "        return false;\n    for (uint32_t i = 1; i < count; i++)", "        return true;\n    for (uint32_t i = 1; i < count; i++)")),
    mutant("granted_before_ready", "blocks are served before they are filled", "grant", (SOURCE, "source->state == SOURCE_COMPLETE\n                         ? source->block_count", "source->state >= SOURCE_OPENED\n                         ? source->block_count")),
    mutant("refusal_ends_pairing", "a read that is refused closes the pairing, and others' reads with it", "runs terminal",
           (PULL, "bool ended = status == STATUS_NOT_FOUND && (sink->state == SINK_ORPHAN || !sink->refused_once);", "bool ended = false;")),
    mutant("doubt_for_ever", "after a refusal the sink never reads again", "waits runs terminal", (PULL, "    sink->in_doubt = false;\n    sink->ready_blocks = sink->block_count;", "    sink->ready_blocks = sink->block_count;"),
           (PULL, "    sink->in_doubt = false;\n    if (ready_blocks", "    if (ready_blocks")),
    mutant("session_loss_drops_handles", "a lost Session ends open handles too", "runs terminal",
           (SOURCE, "        if (table->slots[i].state == SOURCE_QUEUED)\n            end", "        if (table->slots[i].state != SOURCE_UNUSED)\n            end")),
    mutant("publishes_to_lost_stream", "a lost Peer stream stays subscribed, and no heartbeat subscribes again", "runs terminal waits",
           (SOURCE, "            table->slots[i].subscribed = false;", "            table->slots[i].subscribed = true;"),
           (SINK, "    return sink->state == SINK_READING && (!sink->complete || sink->in_doubt) ? PEER_SUBSCRIBE", "    return false ? PEER_SUBSCRIBE"),
           (PULL, "reads ? PEER_SUBSCRIBE : sink_question_of(sink)", "reads && false ? PEER_SUBSCRIBE : sink_question_of(sink)")),
    mutant("no_end_told", "the end of a request is not told to workers", "stop free",
           (LIFE, "    ASSERT(life->state != REQUEST_ENDED);\n    release(life, out);", "    ASSERT(life->state != REQUEST_ENDED);")),
    mutant("release_keeps_sink", "Release leaves a sink that reads", "stop free",
           (SINK, "    if (sink && sink->attempt <= attempt)\n        sink_end", "    if (sink && sink->attempt <= attempt && !sink->reading)\n        sink_end")),
    mutant("release_ends_newer", "a Release ends newer attempts too", "old",
           (SOURCE, "    if (source && source->attempt <= attempt)\n        end(table, source, SOURCE_RELEASED", "    if (source)\n        end(table, source, SOURCE_RELEASED")),
    mutant("begins_again", "an attempt that has ended is begun again", "assert stop old bytes landing runs free",
           ("common/kv/handoff/handoff.c", "past->items[i].request == request && past->items[i].attempt >= attempt", "past->items[i].request == request && past->items[i].attempt > attempt")),
    mutant("orphan_kept", "an orphan's blocks are not given back", "free stop", (PULL, "        sink_append_for(out, SINK_UNRESERVE, sink)->reason = sink->reason;\n", "")),
    mutant("orphan_unreserved_twice", "an orphan's blocks are given back at its end already", "landing",
           (SINK, "        sink->state = SINK_ORPHAN;\n", "        sink->state = SINK_ORPHAN;\n        sink_append_for(out, SINK_UNRESERVE, sink);\n")),
    mutant("no_reread", "after a mismatch the same bytes are checked again", "runs terminal bytes confirm",
           (PULL, "        if (!sink->spoiled)\n            sink->read_blocks = sink->verified_blocks;\n", "")),
    mutant("cached_is_read", "what decode has already is read over it", "landing",
           (SINK, "sink->ready_blocks = sink->read_blocks = sink->verified_blocks = held_blocks;", "(void)held_blocks;")),
    mutant("mismatch_ignored", "a mismatch is taken for good", "bytes", (PULL, "    if (good) {", "    (void)good;\n    if (true) {")),
    mutant("no_older_sink", "a peer's message reaches any attempt", "old", (SINK, "if (sink && sink->attempt == attempt)", "if (sink && attempt)")),
    mutant("session_loss_tells_peer", "sinks that the router counts as dead release their handle", "runs terminal",
           (SINK, SESSION_ENDS, "        {\n            if (sink_pulls(&table->slots[i]))\n                sink_ask(table, now_us, &table->slots[i], PEER_RELEASE, out);\n"
            + SESSION_ENDS + "        }\n")),
    mutant("no_silence_limit", "a sink waits for a silent peer for ever", "waits terminal",
           (SINK, "if (down || sink_later_us(sink->heard_us, config->silence_limit_us) <= now_us)", "if (down)"),
           (SINK, "        next_us = earlier(next_us, sink_later_us(sink->heard_us, config->silence_limit_us));\n", ""),
           (SOURCE, "    table->counters.gone++;\n", "    table->counters.gone++;\n    if (message->kind != PEER_CONFIRM)\n        return;\n")),
    mutant("no_down_limit", "a sink waits for a peer that is gone for ever", "waits free",
           (SINK, "bool down = sink_later_us(sink->down_since_us, config->peer_down_limit_us) <= now_us;", "bool down = false;"),
           (SINK, "        next_us = earlier(next_us, sink_later_us(sink->down_since_us, config->peer_down_limit_us));\n", ""),
           (SINK, "if (down || sink_later_us(sink->heard_us, config->silence_limit_us) <= now_us)", "if (down)"),
           (SINK, "        next_us = earlier(next_us, sink_later_us(sink->heard_us, config->silence_limit_us));\n", ""),
           (SINK, "peer->retry_us <= now_us &&\n            sink_peer_needed(table, peer))", "peer->retry_us <= now_us && false &&\n            sink_peer_needed(table, peer))"),
           (SINK, "            next_us = earlier(next_us, sink->peer->retry_us);", "            continue;")),
    mutant("confirm_not_repeated", "Confirm is asked once", "waits runs terminal", (SINK, "        return PEER_CONFIRM;", "        return PEER_EXTEND;")),
    mutant("gone_ignored", "gone changes nothing", "waits runs terminal",
           (PULL, "    case PEER_GONE: sink_give_up(table, now_us, sink, SINK_REASON_GONE, out); return;", "    case PEER_GONE: return;")),
    mutant("reads_on_closing_pair", "reads don't wait for the new pairing", "landing runs terminal bytes confirm",
           (PULL, "    if (left && sink->peer->pair != PAIR_UP) {", "    if (left && sink->peer->pair != PAIR_UP && sink->peer->pair != PAIR_CLOSING) {")),
    mutant("pairing_not_made_anew", "what closed by itself stays closed", "waits runs terminal",
           (PULL, "        sink_peer_pair(sink->peer, out);\n    } else if (left) {", "    } else if (left) {")),
    mutant("new_incarnation_keeps_pairing", "a peer that came back is read over its old pairing", "bytes runs terminal landing",
           (PULL, "    if (peer->pair_incarnation != incarnation)\n", "    if (false)\n")),
    mutant("ended_for_ever", "who has closed a pairing once is never paired with again", "waits runs terminal",
           (PULL, "    peer->link_ended = false;\n    sink_peer_pair(peer, out);", "    sink_peer_pair(peer, out);"),
           (PULL, "    peer->refused = false;\n    peer->link_ended = false;\n", "    peer->refused = false;\n")),
    mutant("refused_by_another_life", "a refused redial ends handles of the life that listens now", "runs terminal",
           (PULL, "sink->ref.incarnation == peer->incarnation || sink->down_since_us <= peer->broke_us", "true")),
    mutant("regive_base", "a re-given handle is sent with the tokens delivered since", "indices",
           (LIFE, "    action->emitted_count = life->handle_emitted;", "    action->emitted_count = life->delivered;")),
    mutant("regive_releases_prefill", "giving a handle again releases it", "runs terminal",
           (LIFE, "    if (life->state == REQUEST_DECODE)\n        send(life, LIFE_SEND_RELEASE, life->decode, out);\n    place(", "    release(life, out);\n    place(")),
    mutant("regive_same_attempt", "giving a handle again is not a new attempt", "reader runs terminal landing old confirm waits",
           (LIFE, "    life->attempt++; /*", "    life->attempt += state != REQUEST_REGIVE; /*")),
    mutant("prefill_loss_retries", "the router decides that a prefill worker is lost while decode runs", "runs terminal budget",
           (LIFE, "    } else if (life->state != REQUEST_DECODE || worker != life->decode) {",
            "    } else if (life->state == REQUEST_DECODE && worker == life->prefill && life->delivered > 1) {\n        run_again(life, (struct cause){0}, out);\n"
            "    } else if (life->state != REQUEST_DECODE || worker != life->decode) {")),
    mutant("token_twice", "the first token is delivered from both sides", "indices", (LIFE, "    if (token->index <= life->delivered) {", "    if (false) {")),
    mutant("gap_delivered", "a gap between tokens is not seen", "indices", (LIFE, "    if (token->index > life->delivered + 1) {", "    if (false) {")),
    mutant("ends_twice", "a request that has ended can be cancelled", "terminal assert",
           (LIFE, "    out->count = 0;\n    if (life->state != REQUEST_ENDED)\n        finish(life, TERMINAL_CANCELLED",
            "    out->count = 0;\n    if (life->status != TERMINAL_CANCELLED)\n        finish(life, TERMINAL_CANCELLED")),
    mutant("no_pause_end", "a retry that pauses never asks for a place again", "waits runs",
           (LIFE, "    if (life->place_at_us < next_us)\n        next_us = life->place_at_us;\n", "")),
    mutant("blame_on_the_other_side", "a failed step is charged to the other worker of the request", "blame",
           (BREAKER, ".worker = cause->step_failed_before ? 0 : cause->said_by};", ".worker = cause->said_by == cause->decode ? cause->prefill : cause->decode};")),
    mutant("half_open_lets_all_through", "while a probe is out, all others go there too", "probe",
           (BREAKER, "    case BREAKER_HALF_OPEN: return now_us >= breaker->probe_us + limits->probe_us;", "    case BREAKER_HALF_OPEN: return true;")),
    mutant("open_lets_all_through", "an open breaker keeps no request away", "probe",
           (BREAKER, "    case BREAKER_OPEN: return now_us >= breaker->probe_us;", "    case BREAKER_OPEN: return true;")),
    mutant("open_pair_lets_all_through", "an open pair keeps no request away", "probe",
           (BREAKER, "candidate->until_us = admits ? 0", "candidate->until_us = admits || candidate->reader ? 0")),
    mutant("budget_not_checked", "a retry goes on without a token", "budget",
           (BUDGET, "    if (budget->millionths < TOKEN)\n        return false;\n    budget->millionths -= TOKEN;",
            "    if (budget->millionths >= TOKEN)\n        budget->millionths -= TOKEN;")),
    mutant("every_loss_is_free", "the budget pays for no lost worker", "budget",
           (LIFE, "life->losses - life->forgiven.losses == 1;", "life->losses - life->forgiven.losses >= 1;")),
    mutant("progress_is_forgotten", "limits count for a whole life", "limits",
           (LIFE, "    if (progress && life->delivered - life->failed_at >= progress) {", "    if (progress > UINT16_MAX) {")),
    mutant("move_charged", "a planned move counts as a loss", "limits", (LIFE, "replace(life, worker, (struct cause){.moved = true}, out);", "replace(life, worker, (struct cause){.lost = true}, out);")),
    mutant("reader_owes_early", "a new reader owes a token while the prompt is computed", "waits",
           (LIFE, "    case REQUEST_DECODE: return life->has_handle && !life->computed ? life->prefill : life->decode;", "    case REQUEST_DECODE: return life->decode;")),
    mutant("ended_still_binds", "a request that has ended still hears the prefill worker of its handle", "assert indices terminal", (LIFE, "    life->binding = false;\n    life->state = REQUEST_ENDED;", "    life->state = REQUEST_ENDED;")),
    mutant("bound_at_arrival", "the decode worker that was guessed at arrival gets the handle", "order", (LIFE, "    if (life->decode && !is_guess) {", "    if (life->decode) {")),
    mutant("guess_kept_for_ever", "after a guess that drained, the next one gets the handle, too", "order", (LIFE, "    life->keeps_guess = false;\n", "")),
    mutant("opened_twice_counts", "an Opened that comes twice counts two runs", "limits runs", (LIFE, "life->runs += !life->ran;", "life->runs++;"), first=46000),
    mutant("token_gives_no_time", "a new reader is silent since before the prompt was computed, if the token tells of that", "waits",
           (LIFE, "if (is_prefill(life, worker, attempt) || (attempt == life->attempt && worker == life->decode))", "if (attempt == life->attempt && (worker == life->prefill || worker == life->decode))"), first=50600),
    mutant("lack_outlives_handle", "a wait for the retry budget ends as if workers were missing", "terminal",
           (LIFE, "    life->no_worker_since_us = UINT64_MAX; /* nothing is known of workers for both roles yet */\n", ""), first=142300),
    mutant("silence_ignored", "a request waits for a worker that has forgotten it until its deadline", "waits",
           (LIFE, "        append(out, LIFE_SILENT)->worker = request_life_owing(life);\n", "")),
]

ALL = MODEL + CODE
