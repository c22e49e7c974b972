#include "router/planner/request_life.h"

#include "common/base/assert.h"

#include <stddef.h>

const char *terminal_status_name(enum terminal_status status)
{
    static const char *const names[] = {"none",    "ok",         "cancelled",   "deadline",
                                        "invalid", "overloaded", "unavailable", "internal"};
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *request_state_name(enum request_state state)
{
    static const char *const names[] = {"queued", "prefill", "decode", "regive", "ended"};
    return (size_t)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

struct request_limits request_limits_default(void)
{
    return (struct request_limits){.runs = 3,
                                   .losses = 3,
                                   .attempts = 16,
                                   .no_worker_us = 3000000,
                                   .local_us = 1000000,
                                   .pause_us = 10000,
                                   .max_pause_us = 1000000,
                                   .progress_tokens = 64,
                                   .silence_us = 60000000};
}

/* ---------------------------------------------------------------------------------------- parts */

static struct life_action *append(struct life_actions *out, enum life_action_kind kind)
{
    ASSERT(out->count < LIFE_MAX_ACTIONS);
    struct life_action *action = &out->items[out->count++];
    *action = (struct life_action){.kind = kind};
    return action;
}

static void send(const struct request_life *life, enum life_action_kind kind, uint64_t worker,
                 struct life_actions *out)
{
    struct life_action *action = append(out, kind);
    action->worker = worker;
    action->attempt = life->attempt;
    action->emitted_count = life->handle_emitted;
    action->with_handle = life->has_handle;
}

/* Ends the current attempt, and all before it, at every worker that got its command. */
static void release(const struct request_life *life, struct life_actions *out)
{
    if (life->prefill)
        send(life, LIFE_SEND_RELEASE, life->prefill, out);
    if (life->decode && life->state == REQUEST_DECODE && !life->decode_over)
        send(life, LIFE_SEND_RELEASE, life->decode, out);
}

static void finish(struct request_life *life, enum terminal_status status, const char *reason,
                   struct life_actions *out)
{
    ASSERT(life->state != REQUEST_ENDED);
    release(life, out);
    life->binding = false;
    life->state = REQUEST_ENDED;
    life->status = status;
    life->reason = reason;
    struct life_action *action = append(out, LIFE_FINISH);
    action->status = status;
    action->finish = life->finish;
    action->reason = reason;
}

struct cause {
    bool refused, lost, moved;
    uint64_t avoid_prefill, avoid_decode;
};

/* Ends the life at its limits. A planned move is forgiven at once. */
static bool may_try_again(struct request_life *life, struct cause cause, struct life_actions *out)
{
    life->losses += cause.lost;
    if (cause.moved) {
        life->forgiven.attempts++;
        return true;
    }
    life->failed_at = life->delivered;
    if (life->losses - life->forgiven.losses >= life->limits.losses)
        finish(life, TERMINAL_UNAVAILABLE, "losses", out);
    else if (life->attempt - life->forgiven.attempts >= life->limits.attempts)
        finish(life, cause.refused ? TERMINAL_OVERLOADED : TERMINAL_UNAVAILABLE, "attempts", out);
    return life->state != REQUEST_ENDED;
}

static void ask_for_place(struct request_life *life, struct life_actions *out)
{
    struct life_action *action =
        append(out, life->state == REQUEST_REGIVE ? LIFE_PLACE_DECODE : LIFE_PLACE);
    action->avoid_prefill = life->avoid_prefill;
    action->avoid_decode = life->avoid_decode;
    action->again = life->state == REQUEST_REGIVE ? AGAIN_NOT : life->again;
    life->place_at_us = UINT64_MAX;
}

/* The pause between the last placement and that of the coming attempt; 0: none. */
static uint64_t pause_us(const struct request_life *life)
{
    uint32_t attempts = life->attempt - life->forgiven.attempts;
    if (attempts <= 2)
        return 0;
    uint64_t pause_us = life->limits.pause_us;
    for (uint32_t i = 3; i < attempts && pause_us < life->limits.max_pause_us; i++)
        pause_us *= 2;
    return pause_us < life->limits.max_pause_us ? pause_us : life->limits.max_pause_us;
}

static void place(struct request_life *life, enum request_state state, struct cause cause,
                  struct life_actions *out)
{
    life->attempt++; /* messages of the ended attempt are older from here on */
    life->state = state;
    life->decode = 0;
    life->from_decode = life->binding = false;
    life->avoid_prefill = cause.avoid_prefill;
    life->avoid_decode = cause.avoid_decode;
    if (pause_us(life))
        life->place_at_us = life->placed_us + pause_us(life);
    else
        ask_for_place(life, out);
}

static void deliver(struct request_life *life, const struct life_token *token,
                    struct life_actions *out)
{
    life->delivered++;
    life->step_failed = false;
    uint32_t progress = life->limits.progress_tokens;
    if (progress && life->delivered - life->failed_at >= progress) {
        /* All limits begin anew, with the current attempt as the first one. */
        life->forgiven = (struct life_forgiven){
            .attempts = life->attempt - 1, .runs = life->runs - life->ran, .losses = life->losses};
        life->failed_at = life->delivered;
    }
    struct life_action *action = append(out, LIFE_DELIVER);
    action->index = token->index;
    action->id = token->id;
    action->logits_hash = token->logits_hash;
    action->logprobs = token->logprobs;
    bool is_last = life->prompt_only || (life->ends_at_prefill && token->finish == FINISH_NONE);
    action->finish = is_last ? FINISH_MAX_TOKENS : token->finish;
    if (action->finish == FINISH_NONE)
        return;
    life->finish = action->finish;
    finish(life, TERMINAL_OK, "finished", out);
}

/* Counts a prefill of this attempt, once. */
static void count_run(struct request_life *life)
{
    life->runs += !life->ran;
    life->ran = true;
}

/* Prefills the prompt and the emitted tokens again, on other workers if possible. */
static void run_again(struct request_life *life, struct cause cause, struct life_actions *out)
{
    if (life->told) { /* the client doesn't get the missing token */
        deliver(life, &(struct life_token){.index = life->delivered + 1}, out);
        return;
    }
    if (cause.moved)
        life->forgiven.runs += life->ran;
    if (life->runs - life->forgiven.runs >= life->limits.runs) {
        if (life->step_failed)
            finish(life, TERMINAL_INTERNAL, "step_failed", out);
        else
            finish(life, TERMINAL_UNAVAILABLE, "retries", out);
        return;
    }
    if (!may_try_again(life, cause, out))
        return;
    release(life, out);
    /* A request has nothing to do with the first loss since progress, and there are at most as many
     * of them as requests were under way. The budget pays for the others. */
    bool first_loss = cause.lost && life->losses - life->forgiven.losses == 1;
    bool uncomputed = cause.refused && !life->ran;
    life->again = cause.moved ? AGAIN_MOVED : first_loss || uncomputed ? AGAIN_FREE : AGAIN_CHARGED;
    life->prefill = 0;
    life->has_handle = life->ran = false;
    life->no_worker_since_us = UINT64_MAX; /* nothing is known of workers for both roles yet */
    place(life, REQUEST_QUEUED, cause, out);
}

/* Gives the handle to another decode worker. Costs no run. Only the old reader gets a Release. */
static void give_again(struct request_life *life, struct cause cause, struct life_actions *out)
{
    if (!may_try_again(life, cause, out))
        return;
    if (life->state == REQUEST_DECODE)
        send(life, LIFE_SEND_RELEASE, life->decode, out);
    place(life, REQUEST_REGIVE, cause, out);
}

/* True: a message of `attempt` is about the running attempt. Otherwise it is dropped. */
static bool is_current(struct request_life *life, uint32_t attempt)
{
    if (request_life_works(life) && attempt == life->attempt)
        return true;
    life->dropped++;
    return false;
}

/* --------------------------------------------------------------------------------------- events */

void request_life_init(struct request_life *life, const struct request_limits *limits,
                       uint64_t deadline_us, bool prompt_only, struct life_actions *out)
{
    ASSERT(limits->runs > 0 && limits->losses > 0 && limits->attempts > 0);
    out->count = 0;
    *life = (struct request_life){.state = REQUEST_QUEUED,
                                  .limits = *limits,
                                  .attempt = 1,
                                  .prompt_only = prompt_only,
                                  .deadline_us = deadline_us,
                                  .no_worker_since_us = UINT64_MAX,
                                  .away_since_us = UINT64_MAX,
                                  .place_at_us = UINT64_MAX};
    append(out, LIFE_PLACE);
}

void request_life_on_placed(struct request_life *life, uint64_t now_us, uint64_t prefill,
                            uint64_t decode, struct life_actions *out)
{
    out->count = 0;
    ASSERT(decode != 0 || (prefill != 0 && life->state != REQUEST_REGIVE));
    if (life->state != REQUEST_QUEUED && life->state != REQUEST_REGIVE)
        return; /* it ended during the search for a place */
    life->no_worker_since_us = life->away_since_us = UINT64_MAX;
    life->local = false;
    life->placed_us = life->sign_us = now_us;
    life->decode = decode;
    life->ends_at_prefill = !decode;
    life->keeps_guess = false;
    if (life->state == REQUEST_REGIVE) {
        life->binding = false;
        life->state = REQUEST_DECODE;
        send(life, LIFE_SEND_DECODE, decode, out);
        return;
    }
    life->prefill = prefill;
    life->computed = false;
    life->handle_emitted = life->delivered;
    life->state = prefill ? REQUEST_PREFILL : REQUEST_DECODE;
    if (prefill) {
        send(life, LIFE_SEND_PREFILL, prefill, out);
    } else {
        count_run(life);
        send(life, LIFE_SEND_DECODE, decode, out);
    }
}

static uint64_t later_us(uint64_t since_us, uint64_t limit_us)
{
    return since_us > UINT64_MAX - limit_us ? UINT64_MAX : since_us + limit_us;
}

void request_life_on_no_place(struct request_life *life, uint64_t now_us, bool worker_exists,
                              uint64_t away_since_us, struct life_actions *out)
{
    out->count = 0;
    life->away_since_us = worker_exists ? UINT64_MAX : away_since_us;
    life->local = later_us(life->away_since_us, life->limits.local_us) <= now_us;
    if (worker_exists) {
        life->no_worker_since_us = UINT64_MAX;
    } else if (life->no_worker_since_us == UINT64_MAX) {
        life->no_worker_since_us = now_us;
    }
}

void request_life_on_no_reader(struct request_life *life, struct life_actions *out)
{
    out->count = 0;
    if (life->state == REQUEST_REGIVE)
        run_again(life, (struct cause){.refused = true, .avoid_prefill = life->prefill}, out);
}

bool request_life_on_opened(struct request_life *life, uint64_t worker, uint32_t attempt,
                            struct handle_ref ref, struct life_actions *out)
{
    out->count = 0;
    if (!is_current(life, attempt) || life->state != REQUEST_PREFILL || worker != life->prefill)
        return false;
    count_run(life); /* a prefill that is never opened costs no run */
    if (life->ends_at_prefill)
        return false;
    life->has_handle = true;
    life->ref = ref;
    life->handle_attempt = attempt;
    bool is_guess = life->limits.bind_late && !life->keeps_guess;
    if (life->decode && !is_guess) {
        life->state = REQUEST_DECODE;
        send(life, LIFE_SEND_DECODE, life->decode, out);
    } else { /* it was a guess, or left meanwhile */
        life->state = REQUEST_REGIVE;
        life->decode = 0;
        life->binding = life->limits.bind_late;
        ask_for_place(life, out);
    }
    return true;
}

void request_life_keep_guess(struct request_life *life)
{
    life->keeps_guess = true;
}

/* True: the worker computes the prompt in this attempt, or for the handle of this request. */
static bool is_prefill(const struct request_life *life, uint64_t worker, uint32_t attempt)
{
    bool of_handle = life->has_handle && attempt == life->handle_attempt;
    return life->prefill && worker == life->prefill && (of_handle || attempt == life->attempt);
}

void request_life_on_prefilled(struct request_life *life, uint64_t now_us, uint64_t worker,
                               uint32_t attempt)
{
    if (!is_prefill(life, worker, attempt))
        return;
    life->computed = true;
    life->sign_us = now_us; /* the reader has as much time from now on */
}

void request_life_on_sign(struct request_life *life, uint64_t now_us, uint64_t worker,
                          uint32_t attempt)
{
    if (is_prefill(life, worker, attempt) || (attempt == life->attempt && worker == life->decode))
        life->sign_us = now_us;
}

void request_life_on_token(struct request_life *life, const struct life_token *token,
                           struct life_actions *out)
{
    out->count = 0;
    life->computed |= is_prefill(life, token->worker, token->attempt);
    if (!is_current(life, token->attempt))
        return;
    if (life->state == REQUEST_DECODE && token->worker == life->decode)
        life->from_decode = life->computed = true;
    if (token->index <= life->delivered) {
        if (token->index != life->handle_emitted + 1) /* both workers send that one */
            life->dropped++;
        return;
    }
    if (token->index > life->delivered + 1) { /* a message was lost on a live stream */
        run_again(life, (struct cause){0}, out);
        return;
    }
    life->decode_over = token->finish != FINISH_NONE && token->worker == life->decode;
    deliver(life, token, out);
}

void request_life_on_told(struct request_life *life)
{
    life->told = life->prompt_only;
}

void request_life_on_lost(struct request_life *life, uint64_t worker, uint32_t attempt,
                          bool step_failed, struct life_actions *out)
{
    out->count = 0;
    if (!is_current(life, attempt))
        return;
    bool by_decode = life->state == REQUEST_DECODE && worker == life->decode;
    bool by_prefill = step_failed && worker == life->prefill;
    if (!by_prefill && !by_decode)
        return;
    life->step_failed |= step_failed;
    /* A failed handoff may be the fault of either worker: avoids both. */
    run_again(life,
              (struct cause){.avoid_prefill = by_prefill || !step_failed ? life->prefill : 0,
                             .avoid_decode = by_decode ? worker : 0},
              out);
}

void request_life_on_banned(struct request_life *life, uint64_t worker, uint32_t attempt,
                            struct life_actions *out)
{
    out->count = 0;
    if (is_current(life, attempt) && (worker == life->prefill || worker == life->decode))
        finish(life, TERMINAL_INVALID, "no_token_allowed", out);
}

void request_life_on_refused(struct request_life *life, uint64_t worker, uint32_t attempt,
                             bool retry, struct life_actions *out)
{
    out->count = 0;
    if (!is_current(life, attempt))
        return;
    bool by_prefill = life->state == REQUEST_PREFILL && worker == life->prefill;
    bool by_decode = life->state == REQUEST_DECODE && worker == life->decode;
    if (!by_prefill && !by_decode)
        return;
    if (!retry) {
        finish(life, TERMINAL_INVALID, "refused", out);
    } else if (by_prefill) {
        run_again(life, (struct cause){.refused = true, .avoid_prefill = worker}, out);
    } else if (life->has_handle) {
        give_again(life, (struct cause){.refused = true, .avoid_decode = worker}, out);
    } else {
        life->runs--; /* it did not run */
        life->ran = false;
        run_again(life, (struct cause){.refused = true, .avoid_decode = worker}, out);
    }
}

/* The request needs another worker in the place of this one. */
static void replace(struct request_life *life, uint64_t worker, struct cause cause,
                    struct life_actions *out)
{
    if (life->state == REQUEST_PREFILL && worker == life->prefill) {
        cause.avoid_prefill = worker;
        run_again(life, cause, out);
    } else if (life->binding && worker == life->prefill) { /* no reader will tell that it is gone */
        cause.avoid_prefill = worker;
        run_again(life, cause, out);
    } else if (life->state == REQUEST_PREFILL && worker == life->decode) {
        life->decode = 0; /* another is chosen after Opened */
    } else if (life->state != REQUEST_DECODE || worker != life->decode) {
        return; /* in DECODE only the decode worker decides whether the prefill worker is lost */
    } else {
        cause.avoid_decode = worker;
        if (life->has_handle && !life->from_decode)
            give_again(life, cause, out);
        else
            run_again(life, cause, out);
    }
}

void request_life_on_session_lost(struct request_life *life, uint64_t worker,
                                  struct life_actions *out)
{
    out->count = 0;
    replace(life, worker, (struct cause){.lost = true}, out);
}

void request_life_on_moved(struct request_life *life, uint64_t worker, struct life_actions *out)
{
    out->count = 0;
    replace(life, worker, (struct cause){.moved = true}, out);
}

bool request_life_works(const struct request_life *life)
{
    return life->state == REQUEST_PREFILL || life->state == REQUEST_DECODE || life->binding;
}

uint64_t request_life_owing(const struct request_life *life)
{
    switch (life->state) {
    case REQUEST_PREFILL: return life->prefill;
    case REQUEST_REGIVE: return life->binding && !life->computed ? life->prefill : 0;
    case REQUEST_DECODE: return life->has_handle && !life->computed ? life->prefill : life->decode;
    default: return 0;
    }
}

void request_life_on_silent(struct request_life *life, uint64_t worker, struct life_actions *out)
{
    out->count = 0;
    /* The reader of a worker that hangs waits, as it hears heartbeats. */
    if (life->state == REQUEST_DECODE && worker == life->prefill && !life->computed)
        run_again(life, (struct cause){.lost = true, .avoid_prefill = worker}, out);
    else
        replace(life, worker, (struct cause){.lost = true}, out);
}

void request_life_on_cancel(struct request_life *life, struct life_actions *out)
{
    out->count = 0;
    if (life->state != REQUEST_ENDED)
        finish(life, TERMINAL_CANCELLED, "cancelled", out);
}

void request_life_on_stop_string(struct request_life *life, struct life_actions *out)
{
    out->count = 0;
    if (life->state == REQUEST_ENDED)
        return;
    life->finish = FINISH_STOP_STRING;
    finish(life, TERMINAL_OK, "finished", out);
}

void request_life_on_fail(struct request_life *life, enum terminal_status status,
                          const char *reason, struct life_actions *out)
{
    ASSERT(status > TERMINAL_OK);
    out->count = 0;
    if (life->state != REQUEST_ENDED)
        finish(life, status, reason, out);
}

static uint64_t no_worker_end_us(const struct request_life *life)
{
    return later_us(life->no_worker_since_us, life->limits.no_worker_us);
}

static uint64_t local_at_us(const struct request_life *life)
{
    bool asks = life->state == REQUEST_QUEUED && !life->local;
    return asks ? later_us(life->away_since_us, life->limits.local_us) : UINT64_MAX;
}

static uint64_t silent_at_us(const struct request_life *life)
{
    bool owed = life->limits.silence_us && request_life_owing(life);
    return owed ? later_us(life->sign_us, life->limits.silence_us) : UINT64_MAX;
}

void request_life_on_tick(struct request_life *life, uint64_t now_us, struct life_actions *out)
{
    out->count = 0;
    if (life->state == REQUEST_ENDED)
        return;
    bool waits = life->state == REQUEST_QUEUED || life->state == REQUEST_REGIVE;
    if (life->deadline_us <= now_us) {
        finish(life, TERMINAL_DEADLINE, "deadline", out);
    } else if (waits && no_worker_end_us(life) <= now_us) {
        finish(life, TERMINAL_UNAVAILABLE, "no_worker", out);
    } else if (waits && life->place_at_us <= now_us) {
        ask_for_place(life, out);
    } else if (local_at_us(life) <= now_us) {
        life->local = true;
    } else if (silent_at_us(life) <= now_us) {
        append(out, LIFE_SILENT)->worker = request_life_owing(life);
        life->sign_us = now_us; /* the next check comes after as long a silence */
    }
}

uint64_t request_life_next_us(const struct request_life *life)
{
    if (life->state == REQUEST_ENDED)
        return UINT64_MAX;
    uint64_t next_us = no_worker_end_us(life), local_us = local_at_us(life);
    if (local_us < next_us)
        next_us = local_us;
    if (silent_at_us(life) < next_us)
        next_us = silent_at_us(life);
    if (life->place_at_us < next_us)
        next_us = life->place_at_us;
    return life->deadline_us < next_us ? life->deadline_us : next_us;
}
