#include "common/engine/sched/scheduler.h"

#include "common/base/assert.h"
#include "common/base/rng.h"
#include "common/engine/sched/scheduler_state.h"

#include <stdlib.h>
#include <string.h>

#define EVENT_CAPACITY 1024

/* ---------------------------------------------------------------- create, destroy */

static void settle_config(struct scheduler *s)
{
    struct scheduler_config *config = &s->config;
    struct batch_limits *limits = &s->limits;
    limits->chunk_tokens = config->chunk_tokens;
    limits->chunk_us = config->chunk_us;
    limits->prompts_first = config->prompts_first;
    limits->max_batch_sequences =
        config->max_batch_sequences && config->max_batch_sequences < config->max_sequences
            ? config->max_batch_sequences
            : config->max_sequences;
    limits->max_batch_tokens = config->max_batch_tokens
                                   ? config->max_batch_tokens
                                   : limits->max_batch_sequences + config->chunk_tokens;
    s->cost = config->cost.prefill_row_us > 0 ? config->cost : cost_model_default();
    s->policy = policy_of(config->policy);
    s->wake_us = UINT64_MAX;
    s->blocks_per_sequence = scheduler_blocks_for(s, config->context);
    s->sequence_slots =
        config->max_sequences + (config->runs_ahead ? 2 * limits->max_batch_sequences : 0);
    for (s->bucket_count = 1; s->bucket_count < config->max_sequences;)
        s->bucket_count *= 2;
}

static bool open_cache(struct scheduler *s)
{
    struct prefix_cache_config config = {
        .blocks = s->blocks,
        .block_tokens = s->config.block_tokens,
        .policy = s->config.eviction,
        .cost = s->config.eviction_cost,
        .table_seed = s->config.table_seed,
        .event_capacity = s->config.event_capacity ? s->config.event_capacity : EVENT_CAPACITY};
    return !s->config.prefix_cache || prefix_cache_create(&config, &s->cache) == STATUS_OK;
}

static bool allocate(struct scheduler *s)
{
    size_t n = s->config.max_sequences, slots = s->config.host_slots + (size_t)1;
    s->sequences = calloc(s->sequence_slots, sizeof *s->sequences);
    s->empty = calloc(s->sequence_slots, sizeof *s->empty);
    s->buckets = calloc(s->bucket_count, sizeof *s->buckets);
    s->heads = calloc(s->bucket_count, sizeof *s->heads);
    s->by_arrival = calloc(n, sizeof *s->by_arrival);
    s->scratch = calloc(BATCH_GROUPS * n, sizeof *s->scratch);
    s->queue.entries = calloc(n, sizeof *s->queue.entries);
    s->lacking = calloc(s->limits.max_batch_sequences, sizeof *s->lacking);
    s->block_ids = calloc((size_t)s->sequence_slots * s->blocks_per_sequence, sizeof *s->block_ids);
    s->end_ids = calloc(s->config.end_id_count + (size_t)1, sizeof *s->end_ids);
    s->slots = calloc(slots, sizeof *s->slots);
    s->counted = calloc(s->config.block_count, sizeof *s->counted);
    s->swap_ins.list = calloc(slots, sizeof *s->swap_ins.list);
    for (uint32_t i = 0; s->heads && i < s->bucket_count; i++)
        TAILQ_INIT(&s->heads[i]);
    s->made = &s->plans[0];
    for (uint32_t i = 0; i < (s->config.runs_ahead ? 2 : 1); i++) {
        struct planned *plan = &s->plans[i];
        plan->parts = calloc(s->limits.max_batch_sequences, sizeof *plan->parts);
        plan->swap_ins.list = calloc(slots, sizeof *plan->swap_ins.list);
        plan->swap_outs.list = calloc(slots, sizeof *plan->swap_outs.list);
        plan->replaced = calloc(s->config.block_count, sizeof *plan->replaced);
        if (!plan->parts || !plan->swap_ins.list || !plan->swap_outs.list || !plan->replaced)
            return false;
    }
    return s->sequences && s->empty && s->buckets && s->heads && s->by_arrival && s->scratch &&
           s->queue.entries && s->lacking && s->block_ids && s->end_ids && s->slots && s->counted &&
           s->swap_ins.list &&
           tenants_init(&s->tenants, s->config.max_sequences, s->config.turn_tokens) == STATUS_OK &&
           kv_blocks_create(s->config.block_count, &s->blocks) == STATUS_OK && open_cache(s);
}

enum status scheduler_create(const struct scheduler_config *config, struct scheduler **out)
{
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_LIMIT;
    s->config = *config;
    settle_config(s);
    if (!allocate(s)) {
        scheduler_destroy(s);
        return STATUS_LIMIT;
    }
    if (config->end_id_count)
        memcpy(s->end_ids, config->end_ids, config->end_id_count * sizeof *s->end_ids);
    s->config.end_ids = s->end_ids;
    for (uint32_t i = s->sequence_slots; i-- > 0;) {
        s->sequences[i].blocks = s->block_ids + (size_t)i * s->blocks_per_sequence;
        s->empty[s->empty_count++] = &s->sequences[i];
    }
    for (uint32_t i = 0; i < config->host_slots; i++)
        s->slots[i] = config->host_slots - 1 - i;
    s->slot_count = config->host_slots;
    *out = s;
    return STATUS_OK;
}

/* Frees all that the sequence owns: its slot is empty. */
static void empty_slot(struct sequence *sequence)
{
    free(sequence->tokens);
    free((void *)sequence->sampling.biases);
    sequence->tokens = NULL;
    sequence->sampling.biases = NULL;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->sequences && i < s->sequence_slots; i++)
        empty_slot(&s->sequences[i]);
    prefix_cache_destroy(s->cache); /* before the blocks that it watches */
    kv_blocks_destroy(s->blocks);
    tenants_deinit(&s->tenants);
    free(s->sequences);
    free(s->empty);
    free(s->buckets);
    free(s->heads);
    free(s->by_arrival);
    free(s->scratch);
    free(s->queue.entries);
    for (uint32_t i = 0; i < 2; i++) {
        free(s->plans[i].parts);
        free(s->plans[i].swap_ins.list);
        free(s->plans[i].swap_outs.list);
        free(s->plans[i].replaced);
    }
    free(s->lacking);
    free(s->block_ids);
    free(s->end_ids);
    free(s->slots);
    free(s->counted);
    free(s->swap_ins.list);
    free(s);
}

/* ---------------------------------------------------------------- sequences come and go */

void sequence_spec_free(const struct sequence_spec *spec)
{
    free(spec->tokens);
    free((void *)spec->sampling.biases);
    free(spec->constraint_source);
}

static struct sequence **bucket_of(const struct scheduler *s, struct sequence_key key)
{
    uint64_t hash = rng_at(s->config.table_seed, key.request, key.attempt);
    return &s->buckets[hash & (s->bucket_count - 1)];
}

enum status scheduler_add(struct scheduler *s, const struct sequence_spec *spec, struct error *err)
{
    TRY(admission_check(s, spec, err));
    if (s->count == s->config.max_sequences)
        return error_set(err, STATUS_LIMIT, "all %u sequence slots of the worker are in use",
                         s->config.max_sequences);
    uint32_t capacity = admission_hold_tokens(spec, s->config.context) + 1;
    uint32_t *tokens = realloc(spec->tokens, capacity * sizeof *tokens);
    if (!tokens)
        return error_set(err, STATUS_LIMIT, "out of memory for %u tokens", capacity);
    struct sequence *slot = s->empty[--s->empty_count];
    struct sequence **bucket = bucket_of(s, spec->key);
    uint32_t *blocks = slot->blocks;
    uint64_t due_left_us = spec->due_left_us && spec->due_left_us < spec->deadline_left_us
                               ? spec->due_left_us
                               : spec->deadline_left_us;
    /* Another worker that computes the prompt reports its logprobs, too. */
    bool scores = spec->plan != PLAN_RECEIVE && spec->sampling.prompt_logprobs;
    *slot = (struct sequence){
        .key = spec->key,
        .next_in_bucket = *bucket,
        .plan = spec->plan,
        .state = SEQUENCE_WAITING,
        .class_index = priority_class(spec->priority),
        .order = s->next_order++,
        .tokens = tokens,
        .token_count = spec->token_count,
        .token_capacity = capacity,
        .prompt_count = spec->token_count,
        .emitted_count = spec->emitted_count,
        .arrived_us = spec->arrived_us,
        .ran_us = spec->arrived_us,
        .tenant = tenants_come(&s->tenants, spec->tenant),
        .deadline_us =
            spec->deadline_left_us ? spec->arrived_us + spec->deadline_left_us : UINT64_MAX,
        .due_us = due_left_us ? spec->arrived_us + due_left_us : UINT64_MAX,
        .root = spec->root,
        .needs_token = spec->needs_token,
        .may_draft = spec->may_draft,
        .score_next = scores ? spec->sampling.prompt_logprobs_from : UINT32_MAX,
        .sampling = spec->sampling,
        .constraint = spec->constraint,
        .awaits_us = UINT64_MAX,
        .blocks = blocks};
    s->deadline_count += spec->deadline_left_us > 0;
    if (s->policy->weighs_prompts || spec->deadline_left_us)
        slot->likely_cached = admission_match(s, slot).blocks * s->config.block_tokens;
    if (s->policy->came)
        s->policy->came(slot, &s->cost);
    if (s->cache && spec->token_count >= s->config.block_tokens)
        slot->head = prefix_hash_block(spec->root, tokens, s->config.block_tokens).low | 1;
    s->by_arrival[s->count++] = slot;
    *bucket = slot;
    admission_end_round(s);
    return STATUS_OK;
}

/* Returns the sequence's place in by_arrival, which is sorted by order. */
static uint32_t place_of(const struct scheduler *s, const struct sequence *sequence)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->by_arrival[middle]->order < sequence->order)
            low = middle + 1;
        else
            high = middle;
    }
    ASSERT(low < s->count && s->by_arrival[low] == sequence);
    return low;
}

/* Gives up its blocks: no step in flight uses them. */
static void release(struct scheduler *s, struct sequence *sequence)
{
    kv_blocks_give(s->blocks, sequence->blocks, sequence->block_count, sequence->hold);
    empty_slot(sequence);
    sequence->block_count = 0;
    s->empty[s->empty_count++] = sequence;
}

void scheduler_remove(struct scheduler *s, struct sequence *sequence)
{
    uint32_t at = place_of(s, sequence);
    memmove(s->by_arrival + at, s->by_arrival + at + 1,
            (s->count - at - 1) * sizeof *s->by_arrival);
    s->count--;
    struct sequence **link = bucket_of(s, sequence->key);
    while (*link != sequence)
        link = &(*link)->next_in_bucket;
    *link = sequence->next_in_bucket;
    admission_unlist(s, sequence);
    preemption_forget(s, sequence);
    tenants_leave(&s->tenants, sequence->tenant, s->now_us);
    s->deadline_count -= sequence->deadline_us != UINT64_MAX;
    sequence->slot_count = 0;
    sequence->removed = true;
    if (!sequence->in_flight)
        release(s, sequence);
    if (s->blocked == sequence)
        s->blocked = NULL;
    admission_end_round(s);
}

struct sequence *scheduler_find(struct scheduler *s, struct sequence_key key)
{
    struct sequence *sequence = *bucket_of(s, key);
    while (sequence &&
           (sequence->key.request != key.request || sequence->key.attempt != key.attempt))
        sequence = sequence->next_in_bucket;
    return sequence;
}

struct sequence *scheduler_next(struct scheduler *s, size_t *cursor)
{
    return *cursor < s->count ? s->by_arrival[(*cursor)++] : NULL;
}

/* ---------------------------------------------------------------- the plan of a step */

static void promote_starved(struct scheduler *s)
{
    for (uint32_t i = 0; s->policy->age && i < s->count; i++)
        if (sequence_computes(s->by_arrival[i]))
            s->policy->age(s->by_arrival[i], s->now_us, s->config.starve_us);
}

static void choose_rows(struct scheduler *s)
{
    s->made->plan.part_count = batch_plan(&s->limits, s->policy, &s->cost, s->by_arrival, s->count,
                                          s->scratch, s->made->parts);
}

/* Adds drafts to answers, in rows that are left, in blocks of their own, and before they end by
 * count. Drafts lie behind the sequence's tokens. */
static void add_drafts(struct scheduler *s)
{
    scheduler_drafter *propose = s->config.drafter;
    uint32_t rows_left = s->limits.max_batch_tokens;
    for (uint32_t i = 0; i < s->made->plan.part_count; i++)
        rows_left -= s->made->parts[i].row_count;
    for (uint32_t i = 0; rows_left && i < s->made->plan.part_count; i++) {
        struct planned_rows *part = &s->made->parts[i];
        struct sequence *sequence = part->sequence;
        if (!part->decodes || !sequence->may_draft)
            continue;
        uint32_t room = sequence->block_count * s->config.block_tokens - (part->first + 1);
        uint32_t left = sequence->token_capacity - 1 - (sequence->token_count + sequence->pending);
        uint32_t most = min_u32(min_u32(room, left - 1), s->config.draft_tokens);
        most = min_u32(most, rows_left);
        if (!most)
            continue;
        uint32_t *drafts = sequence->tokens + part->first + 1;
        part->draft_count =
            propose ? propose(s->config.drafter_context, sequence, sequence->pending, most, drafts)
                    : sequence_lookup(sequence, sequence->pending, most, drafts);
        part->row_count += part->draft_count;
        rows_left -= part->draft_count;
    }
}

/* The parts run now. Checks that each writes only into blocks that no other sequence reads:
 * otherwise there would be a wrong token. */
static void start_rows(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->made->plan.part_count; i++) {
        const struct planned_rows *part = &s->made->parts[i];
        struct sequence *sequence = part->sequence;
        uint32_t first = part->first / s->config.block_tokens;
        uint32_t end = scheduler_blocks_for(s, part->first + part->row_count);
        ASSERT(end <= sequence->block_count);
        for (uint32_t k = first; k < end; k++)
            ASSERT(kv_blocks_writable(s->blocks, sequence->blocks[k]));
        sequence->ran_us = s->now_us;
    }
    for (uint32_t i = 0; s->flying && i < s->made->plan.part_count; i++)
        if (s->made->parts[i].sequence->pending)
            s->made->parts[i].token_from = s->made->parts[i].sequence->drawn_at;
}

/* The memory of the last plan is free if that isn't in flight; otherwise the other one's is. */
static void begin_plan(struct scheduler *s)
{
    struct planned *other = &s->plans[s->made == s->plans];
    if (s->made->in_flight) {
        s->flying = s->made;
        s->made = other;
    } else {
        s->flying = other->in_flight ? other : NULL;
    }
    ASSERT(!s->made->in_flight);
    preemption_end_moves(s, s->made);
    s->made->plan = (struct step_plan){.parts = s->made->parts, .wake_us = s->wake_us};
}

const struct step_plan *scheduler_plan(struct scheduler *s, uint64_t now_us)
{
    scheduler_set_now(s, now_us);
    admission_end_round(s);
    begin_plan(s);
    tenants_set_turns(&s->tenants);
    preemption_begin_plan(s);
    promote_starved(s);
    deadline_judge_prompts(s);
    choose_rows(s);
    if (!preemption_find_blocks(s)) { /* some have none: choose again without them */
        preemption_mark_stalled(s, true);
        choose_rows(s);
        preemption_mark_stalled(s, false);
    }
    if (s->config.grow)
        preemption_for_waiting(s);
    for (uint32_t i = 0, first; s->flying && i < s->made->plan.part_count; i++)
        s->made->plan.drain |= sequence_rows_to_score(s->made->parts[i].sequence,
                                                      s->made->parts[i].row_count, &first) > 0;
    if (s->made->plan.drain)
        s->made->plan.part_count = 0;
    preemption_end_plan(s);
    if (s->config.draft_tokens)
        add_drafts(s);
    start_rows(s);
    return &s->made->plan;
}

/* ---------------------------------------------------------------- the end of a step */

/* The rows will be in their blocks: the sequence goes on behind them. */
static inline void issue(struct sequence *sequence, const struct planned_rows *part)
{
    sequence->computed = part->first + part->row_count - part->draft_count;
    sequence->verifies = part->draft_count > 0;
    if (sequence->score_next <= sequence->computed)
        sequence->score_next = sequence->computed + 1;
    if (!part->samples)
        return;
    sequence->pending++;
    if (sequence->state == SEQUENCE_PREFILL)
        sequence->state = sequence->plan == PLAN_HAND_OFF ? SEQUENCE_HELD : SEQUENCE_DECODE;
}

void scheduler_rows_issued(struct scheduler *s, const struct step_plan *plan)
{
    uint32_t samples = 0;
    ASSERT(s->config.runs_ahead && plan == &s->made->plan && !s->made->in_flight);
    s->made->in_flight = true;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        struct sequence *sequence = plan->parts[i].sequence;
        sequence->in_flight++;
        issue(sequence, &plan->parts[i]);
        if (plan->parts[i].samples)
            sequence->drawn_at = samples++;
        samples += plan->parts[i].draft_count;
    }
    for (uint32_t i = 0; i < plan->swap_in_count; i++)
        plan->swap_ins[i].sequence->in_flight++;
}

void scheduler_step_done(struct scheduler *s, const struct step_plan *plan, uint64_t took_us,
                         uint64_t swap_us)
{
    double prefill_us = 0;
    uint32_t decodes = 0;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        if (part->decodes)
            decodes += part->row_count;
        else
            prefill_us += cost_model_prefill_us(&s->cost, part->first, part->row_count);
        if (s->policy->ran)
            s->policy->ran(part->sequence, took_us);
    }
    deadline_learn_step(s, prefill_us > 0, decodes, took_us);
    if (plan->part_count)
        cost_model_learn_step(&s->cost, prefill_us, cost_model_decode_us(&s->cost, decodes),
                              (double)took_us);
    if (plan->swap_out_count + plan->swap_in_count)
        cost_model_learn_swap(&s->cost, plan->swap_out_count + plan->swap_in_count,
                              (double)swap_us);
}

/* Gives up a block that the sequence doesn't use any more, as soon as no step in flight does. */
static void give_replaced(struct scheduler *s, const struct sequence *sequence, uint32_t block)
{
    if (sequence->in_flight <= 1) { /* in the step that has just ended, not in the one behind it */
        kv_blocks_give(s->blocks, &block, 1, sequence->hold);
        return;
    }
    ASSERT(s->made->in_flight);
    s->made->replaced[s->made->replaced_count++] = block;
}

/* Remembers each block of the sequence that has become whole with its first `rows` rows. If another
 * block has the same content already, the sequence takes that one instead of its own. Not in a
 * hand-off: its reader knows the ids. */
static void remember_blocks(struct scheduler *s, struct sequence *sequence, uint32_t rows)
{
    uint32_t per = s->config.block_tokens;
    while (sequence->remembers && (sequence->chain.length + 1) * per <= rows) {
        uint32_t index = sequence->chain.length, known;
        uint32_t *block = &sequence->blocks[index];
        if (prefix_cache_insert(s->cache, &sequence->chain, sequence->tokens + (size_t)index * per,
                                *block, &known) != PREFIX_KNOWN)
            continue;
        if (known == *block || sequence->plan == PLAN_HAND_OFF)
            continue;
        kv_blocks_share(s->blocks, &known, 1, sequence->hold);
        give_replaced(s, sequence, *block);
        *block = known;
    }
}

static enum finish_reason add_token(struct scheduler *s, struct sequence *sequence, uint32_t token)
{
    ASSERT(sequence->token_count < sequence->token_capacity);
    sequence->tokens[sequence->token_count++] = token;
    tenants_serve(&s->tenants, sequence->tenant, TENANT_ANSWER_WEIGHT);
    enum finish_reason reason =
        sequence_finish(sequence, s->end_ids, s->config.end_id_count, s->config.context);
    if (reason != FINISH_NONE) {
        sequence->state = SEQUENCE_HELD;
        sequence->pending = 0;
    }
    return reason;
}

/* Adds the token that the row of the sequence's last token drew. If the draft for its place is the
 * same, the draft's row counts. */
static enum finish_reason verify(struct scheduler *s, const struct planned_rows *part,
                                 uint32_t token)
{
    struct sequence *sequence = part->sequence;
    bool is_drafted = sequence->token_count <= part->first + part->draft_count &&
                      sequence->tokens[sequence->token_count] == token;
    enum finish_reason reason = add_token(s, sequence, token);
    sequence->verifies = is_drafted && reason == FINISH_NONE;
    if (sequence->verifies) {
        sequence->computed = sequence->token_count;
        remember_blocks(s, sequence, sequence->computed);
    }
    return reason;
}

enum finish_reason scheduler_admit(struct scheduler *s, struct sequence *sequence,
                                   uint32_t first_token)
{
    ASSERT(sequence->state == SEQUENCE_RESERVED);
    kv_blocks_change(s->blocks, sequence->blocks, sequence->block_count, KV_HOLD_LANDING,
                     KV_HOLD_USED);
    sequence->hold = KV_HOLD_USED;
    sequence->computed = sequence->prompt_count;
    sequence->state = SEQUENCE_DECODE;
    sequence->ran_us = s->now_us;
    remember_blocks(s, sequence, sequence->computed);
    s->search_us = 0; /* it wasn't looked at while it was RESERVED */
    admission_end_round(s);
    return add_token(s, sequence, first_token);
}

enum finish_reason scheduler_rows_done(struct scheduler *s, const struct planned_rows *part,
                                       uint32_t token)
{
    struct sequence *sequence = part->sequence;
    if (!sequence->in_flight)
        issue(sequence, part);
    remember_blocks(s, sequence, part->first + part->row_count - part->draft_count);
    if (!part->samples)
        return FINISH_NONE;
    sequence->pending--;
    return part->draft_count ? verify(s, part, token) : add_token(s, sequence, token);
}

bool scheduler_draft_holds(const struct planned_rows *part)
{
    return part->draft_count && part->sequence->verifies && scheduler_wants(part);
}

enum finish_reason scheduler_draft_done(struct scheduler *s, const struct planned_rows *part,
                                        uint32_t token)
{
    ASSERT(scheduler_draft_holds(part));
    return verify(s, part, token);
}

bool scheduler_wants(const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    return !sequence->removed && (sequence->pending || sequence->state != SEQUENCE_HELD);
}

static void leave_flight(struct scheduler *s, struct sequence *sequence)
{
    if (--sequence->in_flight == 0 && sequence->removed)
        release(s, sequence);
}

void scheduler_step_ended(struct scheduler *s, const struct step_plan *plan)
{
    struct planned *planned = &s->plans[plan != &s->plans[0].plan];
    ASSERT(plan == &planned->plan && planned->in_flight);
    planned->in_flight = false;
    for (uint32_t i = 0; i < plan->part_count; i++)
        leave_flight(s, plan->parts[i].sequence);
    for (uint32_t i = 0; i < plan->swap_in_count; i++)
        leave_flight(s, plan->swap_ins[i].sequence);
    preemption_end_moves(s, planned);
    kv_blocks_give(s->blocks, planned->replaced, planned->replaced_count, KV_HOLD_USED);
    planned->replaced_count = 0;
    admission_end_round(s);
}

void scheduler_fail(struct scheduler *s, struct sequence *sequence)
{
    sequence->state = SEQUENCE_HELD;
    sequence->pending = 0;
    admission_end_round(s);
}

void scheduler_distrust(struct scheduler *s)
{
    if (!s->cache)
        return;
    prefix_cache_clear(s->cache);
    for (uint32_t i = 0; i < s->count; i++)
        s->by_arrival[i]->remembers = false;
}

/* ---------------------------------------------------------------- figures */

struct scheduler_load scheduler_load(const struct scheduler *s)
{
    struct scheduler_load load = s->totals;
    load.sequences = s->count;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        bool waits = scheduler_waits(sequence);
        load.waiting += waits;
        load.preempted += waits && sequence->preempted;
        load.running += sequence_computes(sequence);
        load.reserved_tokens += sequence->token_capacity - 1;
        if (sequence->plan == PLAN_HAND_OFF || sequence->state == SEQUENCE_RESERVED)
            load.unconfirmed_tokens += sequence->token_count;
        if (sequence->plan != PLAN_RECEIVE && (waits || sequence->state == SEQUENCE_PREFILL) &&
            sequence->prompt_count > sequence->computed)
            load.queued_tokens += sequence->prompt_count - sequence->computed;
    }
    for (int state = 0; state < KV_BLOCK_STATES; state++)
        load.blocks[state] = kv_blocks_count(s->blocks, (enum kv_block_state)state);
    load.host_slots = s->config.host_slots - s->slot_count;
    return load;
}

struct prefix_cache *scheduler_prefix_cache(struct scheduler *s)
{
    return s->cache;
}

const struct kv_blocks *scheduler_blocks(const struct scheduler *s)
{
    return s->blocks;
}
