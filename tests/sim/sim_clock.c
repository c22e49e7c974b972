/* Time, chance and streams of a simulated life. */
#include "tests/sim/sim.h"

#include <stdlib.h>

/* --- draws --- */

/* The n-th draw of a kind at a process is a function of the seed and these three, so that leaving
 * something out of a plan changes few other draws. */
static uint64_t draw_of(struct sim *sim, enum sim_draw draw, uint64_t bound)
{
    uint32_t n = sim->drawn[draw][sim->actor]++;
    if (bound <= 1 || (n < SIM_MAX_DRAWS && sim->plan->plain[draw][sim->actor][n]))
        return 0;
    return rng_at(sim->plan->draws, (uint64_t)draw << 8 | sim->actor, n) % bound;
}

uint64_t sim_between(struct sim *sim, enum sim_draw draw, uint64_t low, uint64_t high)
{
    return low + draw_of(sim, draw, high - low + 1);
}

bool sim_chance(struct sim *sim, enum sim_draw draw, uint32_t percent)
{
    return draw_of(sim, draw, 100) >= 100 - percent; /* a plain draw: no */
}

/* --- events --- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void heap_put(struct sim *sim, struct sim_event *event)
{
    if (sim->heap_count == sim->heap_capacity) {
        sim->heap_capacity = sim->heap_capacity ? 2 * sim->heap_capacity : 256;
        sim->heap = realloc(sim->heap, sim->heap_capacity * sizeof(*sim->heap));
        if (!sim->heap)
            sim_give_up("no memory for events");
    }
    uint32_t i = sim->heap_count++;
    for (; i && before(event, sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
}

struct sim_event *sim_next_event(struct sim *sim)
{
    struct sim_event *first = sim->heap[0], *last = sim->heap[--sim->heap_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < sim->heap_count; i = child) {
        if (child + 1 < sim->heap_count && before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!before(sim->heap[child], last))
            break;
        sim->heap[i] = sim->heap[child];
    }
    sim->heap[i] = last;
    return first;
}

void sim_put_off(struct sim *sim, struct sim_event *event, uint64_t until_us)
{
    event->at_us = until_us;
    heap_put(sim, event);
}

static struct sim_event *event_at(struct sim *sim, enum sim_event_kind kind, uint32_t process,
                                  uint64_t at_us)
{
    struct sim_event *event = malloc(sizeof *event);
    if (!event)
        sim_give_up("no memory for an event");
    *event = (struct sim_event){.at_us = at_us,
                                .due_us = at_us,
                                .sent_us = sim->now_us,
                                .order = sim->order++,
                                .kind = kind,
                                .process = process,
                                .epoch = sim->processes[process].epoch};
    heap_put(sim, event);
    return event;
}

struct sim_event *sim_push(struct sim *sim, enum sim_event_kind kind, uint32_t process,
                           uint64_t delay_us)
{
    return event_at(sim, kind, process, sim->now_us + delay_us);
}

struct sim_event *sim_push_ring(struct sim *sim, enum sim_event_kind kind, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    uint64_t *last_us = kind == EVENT_TO_STEP ? &p->to_step_us : &p->from_step_us;
    uint64_t at_us =
        sim->now_us + (sim_chance(sim, DRAW_RING, 20) ? sim_between(sim, DRAW_RING, 0, 3000) : 10);
    *last_us = at_us > *last_us ? at_us : *last_us;
    return event_at(sim, kind, process, *last_us);
}

void sim_schedule_tick(struct sim *sim, uint32_t process, uint64_t next_us)
{
    struct sim_process *p = &sim->processes[process];
    if (next_us == UINT64_MAX)
        return;
    uint64_t at_us = next_us > sim->now_us ? next_us : sim->now_us;
    if (at_us >= p->tick_us)
        return;
    p->tick_us = at_us;
    event_at(sim, EVENT_TICK, process, at_us);
}

/* --- streams --- */

uint32_t sim_open_stream(struct sim *sim, uint32_t dialer, uint32_t acceptor)
{
    if (sim->stream_count == SIM_MAX_STREAMS)
        sim_give_up("more streams than there is room for: something reconnects for ever");
    uint32_t stream = sim->stream_count++;
    sim->streams[stream] = (struct sim_stream){
        .dialer = dialer,
        .acceptor = acceptor,
        .session = dialer == 0,
        .epochs = {sim->processes[dialer].epoch, sim->processes[acceptor].epoch},
        .opened_us = sim->now_us,
        .broken_us = UINT64_MAX};
    sim_trace(sim, dialer, "has a %s to %s", dialer ? "Peer stream" : "Session",
              sim_name(sim, acceptor));
    return stream;
}

void sim_break_stream(struct sim *sim, uint32_t stream)
{
    struct sim_stream *s = &sim->streams[stream];
    if (s->broken_us != UINT64_MAX)
        return;
    s->broken_us = sim->now_us;
    sim_trace(sim, s->dialer, "%s to %s breaks", s->session ? "Session" : "Peer stream",
              sim_name(sim, s->acceptor));
    for (uint32_t end = 0; end < 2; end++) {
        uint32_t process = end ? s->acceptor : s->dialer;
        if (sim->processes[process].epoch != s->epochs[end])
            continue;
        uint64_t delay_us =
            sim_chance(sim, DRAW_LOSS, 50) ? sim_between(sim, DRAW_LOSS, 0, 40000) : 0;
        sim_push(sim, EVENT_STREAM_LOST, process, delay_us)->stream = stream;
    }
}

static struct sim_event *deliver(struct sim *sim, uint32_t stream, uint32_t end,
                                 const struct sim_message *message)
{
    struct sim_stream *s = &sim->streams[stream];
    uint64_t at_us =
        sim->now_us + (sim_chance(sim, DRAW_NETWORK, 25) ? sim_between(sim, DRAW_NETWORK, 50, 8000)
                                                         : sim_between(sim, DRAW_NETWORK, 50, 300));
    s->last_us[end] = at_us > s->last_us[end] ? at_us : s->last_us[end];
    struct sim_event *event =
        event_at(sim, EVENT_MESSAGE, end ? s->dialer : s->acceptor, s->last_us[end]);
    event->epoch = s->epochs[!end];
    event->stream = stream;
    event->message = *message;
    return event;
}

void sim_send(struct sim *sim, uint32_t stream, uint32_t from, const struct sim_message *message)
{
    if (stream == SIM_NONE)
        return;
    struct sim_stream *s = &sim->streams[stream];
    uint32_t end = s->dialer == from ? 0 : 1, to = end ? s->dialer : s->acceptor;
    if (s->broken_us != UINT64_MAX)
        return;
    if (sim_fault_hits(sim, s->session ? FAULT_DROP_SESSION : FAULT_DROP_PEER, from, to)) {
        sim->message_lost = sim->message_lost || s->session;
        return;
    }
    struct sim_fault *stall = sim_fault_hits(sim, FAULT_DELAY, from, to);
    if (stall) {
        uint64_t until_us = sim->now_us + stall->length_us;
        s->last_us[end] = until_us > s->last_us[end] ? until_us : s->last_us[end];
        sim->stalled = true;
    }
    uint64_t at_us = deliver(sim, stream, end, message)->at_us;
    const struct sim_fault *twice = sim_fault_hits(sim, FAULT_DUPLICATE, from, to);
    if (twice) { /* the second one comes after later messages */
        struct sim_event *event =
            event_at(sim, EVENT_MESSAGE, to, at_us + twice->length_us % 200000);
        event->epoch = s->epochs[!end];
        event->stream = stream;
        event->message = *message;
    }
}

/* Messages that arrived before the break are read even if the reader was paused. */
bool sim_arrives(struct sim *sim, const struct sim_event *event)
{
    struct sim_stream *s = &sim->streams[event->stream];
    uint32_t end = s->dialer == event->process ? 0 : 1;
    if (event->due_us > s->broken_us || s->known_lost[end])
        return false;
    for (uint32_t i = 0; i < sim->stream_count; i++) { /* one sent later has come earlier */
        const struct sim_stream *other = &sim->streams[i];
        uint32_t side = other->dialer == event->process ? 0 : 1;
        bool ends_here = other->dialer == event->process || other->acceptor == event->process;
        if (ends_here && other->seen_us[side] > event->sent_us) {
            sim->totals->overtaken++;
            break;
        }
    }
    s->seen_us[end] = event->sent_us;
    return true;
}

bool sim_learns_loss(struct sim *sim, const struct sim_event *event)
{
    struct sim_stream *s = &sim->streams[event->stream];
    uint32_t end = s->dialer == event->process ? 0 : 1;
    bool first = !s->known_lost[end];
    s->known_lost[end] = true;
    return first;
}
