#include "common/worker/step_events.h"

#include "common/base/assert.h"
#include "common/base/clock.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum status step_events_init(struct step_events *events, uint32_t max_sequences)
{
    TRY(ring_create(STEP_LOOP_EVENTS, &events->posted));
    TRY(ring_create(STEP_LOOP_EVENTS, &events->spare));
    for (int i = 0; i < STEP_LOOP_EVENTS; i++) {
        size_t bytes = sizeof(struct step_event) + max_sequences * sizeof(struct step_token);
        struct step_event *event = calloc(1, bytes);
        struct token_logprobs *logprobs = calloc(STEP_EVENT_LOGPROBS, sizeof *logprobs);
        if (!event || !logprobs) {
            free(event);
            free(logprobs);
            return STATUS_LIMIT;
        }
        event->logprobs = logprobs;
        event->token_capacity = max_sequences;
        step_events_recycle(events, event);
    }
    return STATUS_OK;
}

static void drain(struct ring *ring)
{
    for (struct step_event *event; ring && (event = ring_pop(ring));) {
        free(event->logprobs);
        free(event);
    }
    ring_destroy(ring);
}

void step_events_deinit(struct step_events *events)
{
    drain(events->posted);
    drain(events->spare);
}

struct step_event *step_events_take(struct step_events *events, enum step_event_kind kind,
                                    struct sequence_key key)
{
    struct step_event *event = ring_wait(events->spare, UINT64_MAX);
    struct token_logprobs *logprobs = event->logprobs;
    memset(event, 0, offsetof(struct step_event, reports)); /* the reports' count is 0 */
    event->token_count = 0;
    event->kind = kind;
    event->key = key;
    event->logprobs = logprobs;
    return event;
}

void step_events_post(struct step_events *events, struct step_event *event)
{
    event->at_us = clock_now_us();
    enum status status = ring_push(events->posted, event);
    ASSERT(status == STATUS_OK); /* the ring holds the whole pool */
}

void step_events_post_error(struct step_events *events, enum step_event_kind kind,
                            struct sequence_key key, enum status status, const struct error *err)
{
    struct step_event *event = step_events_take(events, kind, key);
    event->status = status;
    event->err = *err;
    step_events_post(events, event);
}

void step_events_post_banned(struct step_events *events, struct sequence_key key,
                             const struct error *err)
{
    struct step_event *event = step_events_take(events, STEP_FAILED, key);
    event->status = STATUS_INVALID;
    event->banned = true;
    event->err = *err;
    step_events_post(events, event);
}

struct step_token *step_event_add_token(struct step_event *event, const struct sequence *sequence)
{
    ASSERT(event->token_count < event->token_capacity);
    struct step_token *token = &event->tokens[event->token_count++];
    *token = (struct step_token){.key = sequence->key,
                                 .index = sequence_answer_count(sequence),
                                 .token = sequence->tokens[sequence->token_count - 1],
                                 .hand_off = sequence->plan == PLAN_HAND_OFF};
    return token;
}

void step_events_post_scores(struct step_events *events, struct sequence_key key,
                             uint32_t first_token, const struct token_logprobs *scores,
                             uint32_t count)
{
    for (uint32_t done = 0; done < count;) {
        struct step_event *event = step_events_take(events, STEP_PROMPT_LOGPROBS, key);
        event->first_token = first_token + done;
        while (done < count && event->logprobs_count < STEP_EVENT_LOGPROBS)
            event->logprobs[event->logprobs_count++] = scores[done++];
        step_events_post(events, event);
    }
}

bool step_event_has_room(const struct step_event *event, bool with_logprobs)
{
    return event->token_count < event->token_capacity &&
           (!with_logprobs || event->logprobs_count < STEP_EVENT_LOGPROBS);
}

void step_event_add_logprobs(struct step_event *event, struct step_token *token,
                             const struct token_logprobs *logprobs)
{
    if (!logprobs->given)
        return;
    ASSERT(event->logprobs_count < STEP_EVENT_LOGPROBS);
    event->logprobs[event->logprobs_count] = *logprobs;
    token->logprobs = &event->logprobs[event->logprobs_count++];
}

void step_events_recycle(struct step_events *events, struct step_event *event)
{
    enum status status = ring_push(events->spare, event);
    ASSERT(status == STATUS_OK); /* the ring holds the whole pool */
}

void step_load_publish(struct step_load *load, const struct engine *engine,
                       struct scheduler *scheduler)
{
    struct engine_counters counters = engine_counters(engine);
    atomic_store(&load->prompt_rows, counters.prompt_rows);
    atomic_store(&load->decode_rows, counters.decode_rows);
    atomic_store(&load->steps, counters.steps);
    atomic_store(&load->recorded_steps, counters.recorded_steps);
    atomic_store(&load->launched_steps, counters.decode_steps - counters.recorded_steps);
    atomic_store(&load->device_us, counters.device_us);
    atomic_store(&load->idle_us, counters.idle_us);
    struct scheduler_load now = scheduler_load(scheduler);
    atomic_store(&load->waiting, now.waiting);
    atomic_store(&load->running, now.running);
    atomic_store(&load->sequences, now.sequences);
    atomic_store(&load->reserved_tokens, now.reserved_tokens);
    atomic_store(&load->unconfirmed_tokens, now.unconfirmed_tokens);
    atomic_store(&load->queued_tokens, now.queued_tokens);
    for (int i = 0; i < KV_BLOCK_STATES; i++)
        atomic_store(&load->blocks[i], now.blocks[i]);
    atomic_store(&load->preempted, now.preempted);
    atomic_store(&load->swapped_blocks, now.host_slots);
    atomic_store(&load->preemptions[STEP_SWAPPED], now.swapped_out);
    atomic_store(&load->preemptions[STEP_DROPPED], now.dropped);
    atomic_store(&load->dropped_rows, now.dropped_rows);
    struct prefix_cache *cache = scheduler_prefix_cache(scheduler);
    if (!cache)
        return;
    struct prefix_cache_counters counts = prefix_cache_counters(cache);
    uint64_t block_tokens = engine_layout(engine)->block_tokens;
    atomic_store(&load->prefix_asked_tokens, counts.asked * block_tokens);
    atomic_store(&load->prefix_hit_tokens, counts.hits * block_tokens);
    atomic_store(&load->prefix_evicted_blocks, counts.evicted);
    atomic_store(&load->prefix_changes, counts.changes);
}
