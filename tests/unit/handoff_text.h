/* Action lists as one line of text, for expectations that read like the protocol and for the
 * simulation's trace. A request and its attempt are "R.A", a handle is "hID.GENERATION", a message
 * to peer P is ">P ...". */
#ifndef BATON_TESTS_HANDOFF_TEXT_H
#define BATON_TESTS_HANDOFF_TEXT_H

#include "common/base/str.h"
#include "common/kv/handoff/sink.h"
#include "common/kv/handoff/source.h"
#include "router/planner/request_life.h"

#define U(x) ((unsigned long long)(x))

static inline void text_ids(struct str *s, const char *label, const uint32_t *ids, uint32_t count)
{
    str_addf(s, "%s", label);
    for (uint32_t i = 0; i < count; i++)
        str_addf(s, " %u", ids[i]);
}

static inline void text_peer_up(struct str *s, const struct peer_up *m)
{
    str_addf(s, "%s %llu.%u", peer_up_kind_name(m->kind), U(m->request), m->attempt);
    if (m->kind == PEER_READY)
        str_addf(s, " %u", m->ready_tokens);
    if (m->kind == PEER_READY && m->sum_count)
        str_addf(s, " sums %u+%u", m->sum_first, m->sum_count);
    if (m->kind == PEER_EXTENDED)
        str_addf(s, " %llu", U(m->left_us));
    if (m->kind == PEER_COMPLETE) {
        str_addf(s, " token %u %s", m->first_token, finish_reason_name(m->finish));
        str_add(s, " sums");
        for (uint32_t i = 0; i < m->sum_count; i++)
            str_addf(s, " %llu", U(m->sums[i]));
    }
}

static inline void text_source_action(struct str *s, const struct source_action *a)
{
    switch (a->kind) {
    case SOURCE_START: str_addf(s, "start %llu.%u", U(a->request), a->attempt); break;
    case SOURCE_FREE:
        str_addf(s, "free %llu.%u %s", U(a->request), a->attempt, source_end_name(a->end));
        break;
    case SOURCE_SEND_OPENED:
        str_addf(s, "opened %llu.%u h%u.%u", U(a->request), a->attempt, a->handle.ref.id,
                 a->handle.ref.generation);
        text_ids(s, " blocks", a->handle.blocks, a->handle.block_count);
        break;
    case SOURCE_SEND_REFUSED:
        str_addf(s, "refused %llu.%u %s%s", U(a->request), a->attempt, a->reason,
                 a->retry ? " retry" : "");
        break;
    case SOURCE_SEND_LOST: str_addf(s, "lost %llu.%u", U(a->request), a->attempt); break;
    case SOURCE_SEND_PEER:
        str_addf(s, ">%llu ", U(a->peer));
        text_peer_up(s, &a->message);
        break;
    }
}

static inline void text_sink_blocks(struct str *s, const struct sink_action *a)
{
    if (a->kind == SINK_READ) {
        str_addf(s, "read %llu.%u", U(a->request), a->attempt);
        for (uint32_t i = 0; i < a->block_count; i++)
            str_addf(s, " %u>%u", a->remote[i], a->local[i]);
    } else {
        str_addf(s, "verify %llu.%u", U(a->request), a->attempt);
        for (uint32_t i = 0; i < a->block_count; i++)
            str_addf(s, " %u=%llu%s", a->local[i], U(a->sums[i]), a->crc ? " crc" : "");
    }
}

static inline void text_sink_to_router(struct str *s, const struct sink_action *a)
{
    const char *what = a->kind == SINK_SEND_TOKEN     ? "token"
                       : a->kind == SINK_SEND_LOST    ? "lost"
                       : a->kind == SINK_SEND_REFUSED ? "refused"
                                                      : "pulled";
    str_addf(s, "%s %llu.%u", what, U(a->request), a->attempt);
    if (a->kind == SINK_SEND_TOKEN)
        str_addf(s, " %u id %u %s", a->index, a->first_token, finish_reason_name(a->finish));
    else if (a->kind == SINK_SEND_PULLED)
        str_addf(s, " %llu early %llu", U(a->pulled_bytes), U(a->early_bytes));
    else
        str_addf(s, " %s%s", sink_reason_name(a->reason), a->retry ? " retry" : "");
}

static inline void text_sink_action(struct str *s, const struct sink_action *a)
{
    switch (a->kind) {
    case SINK_RESERVE:
        str_addf(s, "reserve %llu.%u %u", U(a->request), a->attempt, a->reserve_tokens);
        break;
    case SINK_UNRESERVE: str_addf(s, "unreserve %llu.%u", U(a->request), a->attempt); break;
    case SINK_ADMIT:
        str_addf(s, "admit %llu.%u", U(a->request), a->attempt);
        if (a->compute_prompt)
            str_add(s, " compute");
        else
            str_addf(s, " id %u", a->first_token);
        break;
    case SINK_CONNECT: str_addf(s, "connect %llu", U(a->peer)); break;
    case SINK_CLOSE: str_addf(s, "close %llu", U(a->peer)); break;
    case SINK_PAIR: str_addf(s, "pair %llu", U(a->peer)); break;
    case SINK_UNPAIR: str_addf(s, "unpair %llu", U(a->peer)); break;
    case SINK_SEND_PEER:
        str_addf(s, ">%llu %s %llu.%u h%u.%u", U(a->peer), peer_down_kind_name(a->message.kind),
                 U(a->message.request), a->message.attempt, a->message.ref.id,
                 a->message.ref.generation);
        break;
    case SINK_READ:
    case SINK_VERIFY: text_sink_blocks(s, a); break;
    case SINK_SEND_TOKEN:
    case SINK_SEND_LOST:
    case SINK_SEND_REFUSED:
    case SINK_SEND_PULLED: text_sink_to_router(s, a); break;
    }
}

static inline void text_life_action(struct str *s, const struct life_action *a)
{
    switch (a->kind) {
    case LIFE_PLACE:
    case LIFE_PLACE_DECODE:
        str_add(s, a->kind == LIFE_PLACE ? "place" : "place_decode");
        if (a->avoid_prefill)
            str_addf(s, " not p%llu", U(a->avoid_prefill));
        if (a->avoid_decode)
            str_addf(s, " not d%llu", U(a->avoid_decode));
        break;
    case LIFE_SEND_PREFILL:
        str_addf(s, ">%llu prefill a%u emitted %u", U(a->worker), a->attempt, a->emitted_count);
        break;
    case LIFE_SEND_DECODE:
        str_addf(s, ">%llu decode a%u emitted %u%s", U(a->worker), a->attempt, a->emitted_count,
                 a->with_handle ? " handle" : "");
        break;
    case LIFE_SEND_RELEASE: str_addf(s, ">%llu release a%u", U(a->worker), a->attempt); break;
    case LIFE_DELIVER: str_addf(s, "deliver %u id %u", a->index, a->id); break;
    case LIFE_SILENT: str_addf(s, "silent %llu", U(a->worker)); break;
    case LIFE_FINISH:
        str_addf(s, "finish %s %s (%s)", terminal_status_name(a->status),
                 finish_reason_name(a->finish), a->reason);
        break;
    }
}

/* "a; b; c", or "" for no action. */
#define TEXT_OF_LIST(name, list_type, one)                                                         \
    static inline void name(struct str *s, const struct list_type *list)                           \
    {                                                                                              \
        for (uint32_t i = 0; i < list->count; i++) {                                               \
            if (i)                                                                                 \
                str_add(s, "; ");                                                                  \
            one(s, &list->items[i]);                                                               \
        }                                                                                          \
    }
TEXT_OF_LIST(text_source_actions, source_actions, text_source_action)
TEXT_OF_LIST(text_sink_actions, sink_actions, text_sink_action)
TEXT_OF_LIST(text_life_actions, life_actions, text_life_action)

#endif
