#include "common/base/assert.h"
#include "router/planner/virtual_cluster.h"
#include "router/planner/virtual_state.h"

#include <math.h>
#include <stdlib.h>

#define NO_LINK_US UINT64_MAX

enum status virtual_node_open(struct virtual_cluster *cluster, struct virtual_node *node,
                              struct error *err)
{
    struct scheduler_config config = node->is.scheduler;
    config.end_ids = &cluster->end_id;
    config.end_id_count = 1;
    config.table_seed = rng_at(cluster->config.seed, 0, node->key);
    node->link = (struct link_model){.bytes_per_us = node->is.profile.link_bytes_per_second / 1e6,
                                     .latency_us = node->is.profile.link_latency_us};
    node->link_us = NO_LINK_US;
    cost_fit_init(&node->learnt.steps, NULL, 0);
    node->learnt.kv_bytes_per_token = (double)node->is.profile.kv_bytes_per_token;
    if (!config.block_tokens || !config.block_count || !config.max_sequences ||
        !config.chunk_tokens || !config.context)
        return error_set(err, STATUS_INVALID,
                         "worker %u: block_tokens, block_count, max_sequences, chunk_tokens and "
                         "context must not be 0",
                         (unsigned)node->key);
    return scheduler_create(&config, &node->scheduler);
}

void virtual_node_close(struct virtual_node *node)
{
    scheduler_destroy(node->scheduler);
    free(node->jobs);
    free(node->reads);
}

/* Returns the run of a sequence here. */
static struct virtual_run *run_of(const struct virtual_cluster *cluster,
                                  const struct virtual_node *node, struct sequence_key key)
{
    for (struct virtual_run *run = cluster->calls[key.request]->run; run; run = run->next)
        if ((run->prefill == node && run->prefill_attempt == key.attempt) ||
            (run->decode == node && run->decode_attempt == key.attempt))
            return run;
    ASSERT(false);
    return NULL;
}

/* ---------------------------------------------------------------------------------------- reads */

static void arm_link(struct virtual_cluster *cluster, struct virtual_node *node)
{
    uint64_t next_us = link_next_us(&node->link);
    if (next_us >= node->link_us)
        return;
    node->link_us = next_us;
    virtual_post(cluster,
                 (struct virtual_event){.at_us = next_us, .kind = EVENT_LINK, .node = node});
}

/* All rows are at the decode worker: it decodes, and the prefill worker's blocks are free. */
static void landed(struct virtual_cluster *cluster, struct virtual_run *run)
{
    struct virtual_event event = {.at_us = cluster->figures.now_us,
                                  .kind = EVENT_JOB,
                                  .node = run->decode,
                                  .job = {JOB_LANDED, run, run->decode_attempt}};
    run->whole = true;
    run->decode->learnt.lane_bytes_per_second = run->prefill->learnt.lane_bytes_per_second =
        run->decode->learnt.link_bytes_per_second = lane_speed_bytes_per_second(&run->decode->lane);
    virtual_post(cluster, event);
    event.at_us += cluster->config.message_us;
    event.node = run->prefill;
    event.job = (struct virtual_job){JOB_CONFIRMED, run, run->prefill_attempt};
    virtual_post(cluster, event);
    virtual_pulled(cluster, run);
}

/* Reads the rows that are computed and not here yet. */
static void read_more(struct virtual_cluster *cluster, struct virtual_run *run)
{
    if (!run->reserved || run->reads || run->whole)
        return;
    struct virtual_node *node = run->decode;
    const struct step_profile *profile = &node->is.profile;
    uint32_t block = node->is.scheduler.block_tokens;
    uint32_t there = run->complete ? run->prompt_tokens : run->computed / block * block;
    if (there > run->landed && profile->link_bytes_per_second > 0) {
        double bytes = (double)(there - run->landed) * (double)profile->kv_bytes_per_token;
        run->asked = there;
        run->reads = true;
        lane_speed_on_read(&node->lane, cluster->figures.now_us);
        link_add(&node->link, &run->flow, bytes, cluster->figures.now_us);
        node->reads = virtual_grow(node->reads, node->read_count, sizeof(struct virtual_run *),
                                   &node->read_capacity);
        node->reads[node->read_count++] = run;
        arm_link(cluster, node);
        return;
    }
    if (there > run->landed)
        run->landed = there;
    if (run->complete && run->landed >= run->prompt_tokens)
        landed(cluster, run);
}

static void stop_reading(struct virtual_run *run, uint64_t now_us)
{
    struct virtual_node *node = run->decode;
    if (run->reads)
        lane_speed_on_read_done(&node->lane, 0, now_us);
    run->reserved = run->reads = false;
    link_remove(&node->link, &run->flow);
    for (uint32_t i = 0; i < node->read_count; i++)
        if (node->reads[i] == run) {
            node->reads[i] = node->reads[--node->read_count];
            break;
        }
}

void virtual_node_link(struct virtual_cluster *cluster, struct virtual_node *node)
{
    uint64_t now_us = cluster->figures.now_us;
    if (now_us < node->link_us)
        return; /* this event was overtaken */
    node->link_us = NO_LINK_US;
    link_advance(&node->link, now_us);
    for (uint32_t i = 0; i < node->read_count;) {
        struct virtual_run *run = node->reads[i];
        if (!link_done(&run->flow)) {
            i++;
            continue;
        }
        link_remove(&node->link, &run->flow);
        node->reads[i] = node->reads[--node->read_count];
        run->reads = false;
        lane_speed_on_read_done(
            &node->lane, (uint64_t)(run->asked - run->landed) * node->is.profile.kv_bytes_per_token,
            now_us);
        run->landed = run->asked;
        read_more(cluster, run); /* a new read is the last of the list, and isn't done */
    }
    arm_link(cluster, node);
}

/* ----------------------------------------------------------------------------------------- jobs */

static void add(struct virtual_cluster *cluster, struct virtual_node *node, struct virtual_run *run,
                enum sequence_plan plan, uint32_t attempt)
{
    struct virtual_call *call = run->call;
    uint64_t now_us = cluster->figures.now_us;
    struct sequence_spec spec = {
        .key = {call->id, attempt},
        .plan = plan,
        .priority = call->asked.priority,
        .arrived_us = now_us,
        .tokens = malloc(run->prompt_tokens * sizeof *spec.tokens),
        .token_count = run->prompt_tokens,
        .emitted_count = run->emitted_tokens,
        .sampling = sampling_default(),
        .tenant = call->asked.tenant,
        .root = cluster->root,
    };
    ASSERT(spec.tokens);
    spec.sampling.max_tokens = call->asked.max_tokens;
    spec.sampling.ignore_eos = call->asked.exact;
    if (call->deadline_us != UINT64_MAX)
        spec.deadline_left_us = call->deadline_us > now_us ? call->deadline_us - now_us : 1;
    if (plan == PLAN_HAND_OFF) {
        spec.deadline_left_us = call->due.left_us;
        spec.due_left_us = call->due.due_us;
    }
    virtual_prompt(cluster, run, spec.tokens);
    enum status status = scheduler_add(node->scheduler, &spec, NULL);
    if (status == STATUS_OK) {
        call->references++;
        return;
    }
    sequence_spec_free(&spec);
    virtual_refused(cluster, node, call, attempt, status == STATUS_LIMIT);
}

/* Ends the sequence here, if there is one. */
static void drop(struct virtual_cluster *cluster, struct virtual_node *node,
                 struct virtual_run *run, uint32_t attempt)
{
    struct virtual_call *call = run->call;
    struct sequence *sequence =
        scheduler_find(node->scheduler, (struct sequence_key){call->id, attempt});
    if (!sequence)
        return;
    if (sequence->state == SEQUENCE_RESERVED)
        stop_reading(run, cluster->figures.now_us);
    scheduler_remove(node->scheduler, sequence);
    virtual_call_unref(cluster, call);
}

/* Returns the token at `index` (from 0) of the answer. */
static uint32_t answer_token(const struct virtual_cluster *cluster, const struct virtual_call *call,
                             uint32_t index)
{
    const struct virtual_request *asked = &call->asked;
    if (index + 1 >= asked->answer_tokens && asked->answer_tokens < asked->max_tokens)
        return VIRTUAL_END;
    return virtual_answer_token(cluster->config.seed, call->id, index);
}

static void say_token(struct virtual_cluster *cluster, struct virtual_node *node,
                      struct virtual_call *call, struct sequence_key key, uint32_t index,
                      enum finish_reason finish)
{
    const struct life_token token = {.worker = node->key,
                                     .attempt = key.attempt,
                                     .index = index + 1,
                                     .id = answer_token(cluster, call, index),
                                     .finish = finish};
    virtual_token(cluster, node, call, &token);
}

/* The rows of a handed-off prompt are here: its answer goes on. */
static void admit(struct virtual_cluster *cluster, struct virtual_node *node,
                  struct virtual_run *run, uint32_t attempt)
{
    struct virtual_call *call = run->call;
    struct sequence_key key = {call->id, attempt};
    struct sequence *sequence = scheduler_find(node->scheduler, key);
    if (!sequence || sequence->state != SEQUENCE_RESERVED)
        return; /* it was released meanwhile */
    run->reserved = false;
    enum finish_reason finish = scheduler_admit(node->scheduler, sequence, run->first_token);
    say_token(cluster, node, call, key, run->emitted_tokens, finish);
    if (finish != FINISH_NONE)
        drop(cluster, node, run, attempt);
}

static void take_job(struct virtual_cluster *cluster, struct virtual_node *node,
                     struct virtual_job job)
{
    struct virtual_run *run = job.run;
    switch (job.kind) {
    case JOB_PREFILL: add(cluster, node, run, PLAN_HAND_OFF, job.attempt); break;
    case JOB_DECODE:
        run->landed = run->asked = 0;
        run->whole = false;
        add(cluster, node, run, run->prefill ? PLAN_RECEIVE : PLAN_LOCAL, job.attempt);
        break;
    case JOB_RELEASE:
        for (run = run->call->run; run; run = run->next) {
            if (run->prefill == node && run->prefill_attempt <= job.attempt)
                drop(cluster, node, run, run->prefill_attempt);
            if (run->decode == node && run->decode_attempt <= job.attempt)
                drop(cluster, node, run, run->decode_attempt);
        }
        break;
    case JOB_LANDED: admit(cluster, node, run, job.attempt); break;
    case JOB_CONFIRMED: drop(cluster, node, run, job.attempt); break;
    }
}

/* ---------------------------------------------------------------------------------------- steps */

static void take_jobs(struct virtual_cluster *cluster, struct virtual_node *node)
{
    for (uint32_t i = 0; i < node->job_count; i++) {
        take_job(cluster, node, node->jobs[i]);
        virtual_call_unref(cluster, node->jobs[i].run->call);
    }
    node->job_count = 0;
    for (struct sequence *missed;
         (missed = scheduler_next_missed(node->scheduler, cluster->figures.now_us));) {
        struct virtual_run *run = run_of(cluster, node, missed->key);
        uint32_t attempt = missed->key.attempt;
        virtual_late(cluster, run->call, attempt);
        drop(cluster, node, run, attempt);
    }
}

static void reserve_blocks(struct virtual_cluster *cluster, struct virtual_node *node)
{
    for (struct sequence *sequence;
         (sequence = scheduler_reserve(node->scheduler, cluster->figures.now_us));) {
        struct virtual_run *run = run_of(cluster, node, sequence->key);
        if (sequence->plan == PLAN_RECEIVE) {
            run->reserved = true;
            run->landed = sequence->computed;
            read_more(cluster, run);
            continue;
        }
        run->call->cached_tokens = sequence->computed;
        if (sequence->plan == PLAN_LOCAL)
            continue;
        run->computed = sequence->computed;
        virtual_opened(cluster, node, run);
    }
}

static struct step_shape shape_of(const struct step_plan *plan)
{
    struct step_shape shape = {0};
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct sequence *sequence = plan->parts[i].sequence;
        uint64_t rows = plan->parts[i].row_count, first = sequence->computed;
        uint64_t before = rows * first + rows * (rows - 1) / 2;
        bool decodes = sequence->state == SEQUENCE_DECODE;
        *(decodes ? &shape.decode_rows : &shape.prefill_rows) += (uint32_t)rows;
        *(decodes ? &shape.decode_context : &shape.prefill_positions) += before;
    }
    return shape;
}

/* Begins the next step, if there is one. */
static void begin_step(struct virtual_cluster *cluster, struct virtual_node *node)
{
    const struct step_plan *plan;
    const struct step_profile *profile = &node->is.profile;
    uint64_t now_us = cluster->figures.now_us;
    do {
        take_jobs(cluster, node);
        reserve_blocks(cluster, node);
        plan = scheduler_plan(node->scheduler, now_us);
    } while (!plan->part_count && !plan->swap_out_count && !plan->swap_in_count && plan->freed);
    uint64_t swapped = (uint64_t)plan->swap_out_count + plan->swap_in_count;
    if (!plan->part_count && !swapped) {
        if (plan->wake_us != UINT64_MAX && !node->wake_us) {
            node->wake_us = plan->wake_us;
            virtual_post(cluster, (struct virtual_event){
                                      .at_us = plan->wake_us, .kind = EVENT_WAKE, .node = node});
        }
        return;
    }
    double slowness = node->is.slowness > 0 ? node->is.slowness : 1;
    node->plan = plan;
    node->shape = shape_of(plan);
    node->took_us = 0;
    if (plan->part_count)
        node->took_us =
            (uint64_t)llrint(slowness * step_profile_us(profile, &node->shape, node->steps++));
    node->swap_us = (uint64_t)llrint(
        slowness * step_profile_swap_us(profile, swapped * node->is.scheduler.block_tokens));
    node->stepping = true;
    virtual_post(cluster, (struct virtual_event){.at_us = now_us + node->swap_us + node->took_us,
                                                 .kind = EVENT_STEP,
                                                 .node = node});
}

static void part_done(struct virtual_cluster *cluster, struct virtual_node *node,
                      const struct planned_rows *part)
{
    struct sequence *sequence = part->sequence;
    struct sequence_key key = sequence->key;
    struct virtual_run *run = run_of(cluster, node, key);
    uint32_t index = sequence_answer_count(sequence);
    uint32_t token = part->samples ? answer_token(cluster, run->call, index) : 0;
    bool hands_off = sequence->plan == PLAN_HAND_OFF;
    enum finish_reason finish = scheduler_rows_done(node->scheduler, part, token);
    if (hands_off) {
        run->computed = sequence->computed;
        run->complete = part->samples;
        run->first_token = token;
    } else if (finish != FINISH_NONE) {
        scheduler_remove(node->scheduler, sequence);
    }
    if (part->samples)
        say_token(cluster, node, run->call, key, index, finish);
    if (hands_off)
        read_more(cluster, run);
    else if (finish != FINISH_NONE)
        virtual_call_unref(cluster, run->call);
}

void virtual_node_step_done(struct virtual_cluster *cluster, struct virtual_node *node)
{
    const struct step_plan *plan = node->plan;
    node->stepping = false;
    scheduler_step_done(node->scheduler, plan, node->took_us, node->swap_us);
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        struct virtual_call *call = run_of(cluster, node, part->sequence->key)->call;
        if (part->samples && !call->prefilled && !call->ended)
            placement_found_cached(&cluster->placement, &call->placing, call->cached_tokens);
    }
    /* Prompts that end with it take their rows along. */
    placement_worker_stepped(&cluster->placement, node->key, node->shape.prefill_rows);
    for (uint32_t i = 0; i < plan->part_count; i++)
        part_done(cluster, node, &plan->parts[i]);
    virtual_reported(cluster, node);
    begin_step(cluster, node);
}

void virtual_node_wake(struct virtual_cluster *cluster, struct virtual_node *node)
{
    node->wake_us = 0;
    if (!node->stepping)
        begin_step(cluster, node);
}

void virtual_node_job(struct virtual_cluster *cluster, struct virtual_node *node,
                      struct virtual_job job)
{
    node->jobs = virtual_grow(node->jobs, node->job_count, sizeof *node->jobs, &node->job_capacity);
    node->jobs[node->job_count++] = job;
    job.run->call->references++;
    if (!node->stepping)
        begin_step(cluster, node);
}
