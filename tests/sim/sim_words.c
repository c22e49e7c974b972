/* Describes the events of a simulated life in words. "2.1" is attempt 1 of request 2, "h0.3" the
 * third use of slot 0 of a source table. */
#include "tests/sim/sim.h"

#define U(x) ((unsigned long long)(x))

const char *sim_invariant_name(enum sim_invariant invariant)
{
    static const char *const names[] = {"all",     "bytes", "landing", "free",   "terminal",
                                        "indices", "waits", "runs",    "reader", "confirm",
                                        "old",     "fence", "stop",    "order",  "grant",
                                        "blame",   "probe", "budget",  "limits", "assert"};
    return (size_t)invariant < sizeof names / sizeof *names ? names[invariant] : "unknown";
}

const char *sim_name(const struct sim *sim, uint32_t process)
{
    static const char *const prefills[] = {"", "p1", "p2", "p3", "p4", "p5", "p6"};
    static const char *const decodes[] = {"", "d1", "d2", "d3", "d4", "d5", "d6"};
    if (process == 0)
        return "router";
    return process <= sim->plan->prefills ? prefills[process] : decodes[process];
}

uint32_t sim_token_id(uint64_t request, uint32_t index)
{
    return (uint32_t)(request * 1000 + index);
}

static void say_peer(struct str *text, const struct sim_message *m)
{
    if (m->kind == MESSAGE_PEER_DOWN) {
        str_addf(text, "%s %llu.%u h%u.%u", peer_down_kind_name(m->down.kind), U(m->down.request),
                 m->down.attempt, m->down.ref.id, m->down.ref.generation);
        return;
    }
    str_addf(text, "%s %llu.%u", peer_up_kind_name(m->up.kind), U(m->up.request), m->up.attempt);
    if (m->up.kind == PEER_READY)
        str_addf(text, ", %u tokens", m->up.ready_tokens);
    if (m->up.kind == PEER_COMPLETE && m->up.finish != FINISH_NONE)
        str_add(text, ", the answer ends with it");
}

void sim_say_message(struct str *text, const struct sim_message *m)
{
    static const char *const names[] = {"Prefill", "Decode", "Release", "Opened",
                                        "Refused", "token",  "Lost",    "draining"};
    if (m->kind == MESSAGE_PEER_DOWN || m->kind == MESSAGE_PEER_UP) {
        say_peer(text, m);
        return;
    }
    if (m->kind == MESSAGE_DRAINING) {
        str_add(text, "that it is draining");
        return;
    }
    str_addf(text, "%s %llu.%u", names[m->kind], U(m->request), m->attempt);
    if (m->kind == MESSAGE_PREFILL || m->kind == MESSAGE_DECODE)
        str_addf(text, ", %u tokens", m->token_count);
    if (m->kind == MESSAGE_OPENED || (m->kind == MESSAGE_DECODE && m->has_handle))
        str_addf(text, ", handle h%u.%u", m->handle.ref.id, m->handle.ref.generation);
    if (m->kind == MESSAGE_TOKEN)
        str_addf(text, ", number %u%s", m->token.index, m->token.finish ? ", the last" : "");
}

bool sim_say_source(const struct sim *sim, struct str *text, const struct source_action *a)
{
    (void)sim;
    switch (a->kind) {
    case SOURCE_START:
        str_addf(text, "queues the prompt of %llu.%u", U(a->request), a->attempt);
        break;
    case SOURCE_FREE:
        str_addf(text, "ends %llu.%u: %s", U(a->request), a->attempt, source_end_name(a->end));
        break;
    case SOURCE_SEND_OPENED:
        str_addf(text, "opens h%u.%u for %llu.%u, blocks", a->handle.ref.id,
                 a->handle.ref.generation, U(a->request), a->attempt);
        for (uint32_t i = 0; i < a->handle.block_count; i++)
            str_addf(text, " %u", a->handle.blocks[i]);
        break;
    default: return false;
    }
    return true;
}

bool sim_say_sink(const struct sim *sim, struct str *text, const struct sink_action *a)
{
    const char *peer = sim_name(sim, (uint32_t)a->peer);
    switch (a->kind) {
    case SINK_RESERVE:
        str_addf(text, "wants room for %llu.%u, %u tokens", U(a->request), a->attempt,
                 a->reserve_tokens);
        break;
    case SINK_UNRESERVE: str_addf(text, "drops %llu.%u", U(a->request), a->attempt); break;
    case SINK_ADMIT:
        str_addf(text, "%s %llu.%u", a->compute_prompt ? "computes and runs" : "runs",
                 U(a->request), a->attempt);
        break;
    case SINK_CONNECT: str_addf(text, "dials %s", peer); break;
    case SINK_CLOSE: str_addf(text, "closes all to %s", peer); break;
    case SINK_PAIR: str_addf(text, "pairs with %s", peer); break;
    case SINK_UNPAIR: str_addf(text, "closes the pairing with %s by force", peer); break;
    case SINK_READ:
        str_addf(text, "reads for %llu.%u from %s:", U(a->request), a->attempt, peer);
        for (uint32_t i = 0; i < a->block_count; i++)
            str_addf(text, " %u to %u", a->remote[i], a->local[i]);
        break;
    case SINK_VERIFY:
        str_addf(text, "checks the bytes of %llu.%u", U(a->request), a->attempt);
        break;
    case SINK_SEND_LOST:
        str_addf(text, "gives up %llu.%u: %s", U(a->request), a->attempt,
                 sink_reason_name(a->reason));
        break;
    case SINK_SEND_REFUSED:
        str_addf(text, "refuses %llu.%u: %s", U(a->request), a->attempt,
                 sink_reason_name(a->reason));
        break;
    default: return false;
    }
    return true;
}

bool sim_say_life(struct str *text, const struct life_action *a)
{
    switch (a->kind) {
    case LIFE_PLACE: str_add(text, "wants workers"); break;
    case LIFE_PLACE_DECODE: str_add(text, "wants a decode worker for its handle"); break;
    case LIFE_DELIVER: str_addf(text, "token %u to the client", a->index); break;
    case LIFE_FINISH:
        str_addf(text, "ends: %s (%s)", terminal_status_name(a->status), a->reason);
        break;
    default: return false;
    }
    return true;
}
