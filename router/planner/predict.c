#include "router/planner/predict.h"

#include <math.h>

#define PER_OCTAVE   8
#define LEAST_OCTAVE (-3)
#define SAMPLE       64  /* weight of a new ratio in its bin */
#define SAMPLES      384 /* in all bins; then all are halved */
#define PRIOR        8   /* ratios that the prior counts as */
#define PRIOR_SIGMA  0.25
#define NARROWEST    0.05 /* beyond the objective: half as likely to attain for each so much */
#define P90_SIGMAS   1.2816
#define MOST_ROWS    4e9
/* A prompt holds up its worker's answers, of which a prefill worker has none: where all else is
 * equal that one computes it. */
#define LOCAL_MORE 1.0625
#define ROUNDED    1e-6
#define SQRT_HALF  0.70710678118654752
#define LN_2       0.69314718055994531

/* Serves for a worker of unknown cost: a 13B model on one A100, roughly (DistServe). */
static const struct step_cost nominal = {.step_us = 10000,
                                         .prefill_row_us = 100,
                                         .prefill_position_us = 5e-3,
                                         .decode_row_us = 50,
                                         .decode_context_us = 5e-2};

static bool is_known(const struct candidate *worker)
{
    const struct worker_learnt *learnt = worker->is.learnt;
    if (!learnt)
        return false;
    const struct step_cost *cost = &learnt->steps.figures.cost;
    return cost->step_us + cost->prefill_row_us + cost->decode_row_us > 0;
}

static uint32_t whole_rows(double rows)
{
    return rows < MOST_ROWS ? (uint32_t)ceil(rows - ROUNDED) : (uint32_t)MOST_ROWS;
}

/* Returns the time of a step with these rows; without any: 0. */
static double step_us(const struct candidate *worker, double prefill_rows, double positions,
                      double rows, double context, enum cost_quantile quantile)
{
    const struct step_shape shape = {.prefill_rows = whole_rows(prefill_rows),
                                     .prefill_positions = (uint64_t)positions,
                                     .decode_rows = whole_rows(rows),
                                     .decode_context = (uint64_t)context};
    if (!shape.prefill_rows && !shape.decode_rows)
        return 0;
    return is_known(worker) ? cost_fit_predict(&worker->is.learnt->steps, &shape, quantile)
                            : step_cost_predict(&nominal, &shape);
}

/* --------------------------------------------------------------------------------- prompts */

/* Prompts that one worker computes one after the other. */
struct prompts {
    double rows, positions, requests;
};

static double drawing_us(const struct candidate *worker, enum cost_quantile quantile)
{
    const struct books_rows *drawing = &worker->books.drawing;
    return step_us(worker, 0, 0, drawing->rows, (double)drawing->context, quantile);
}

/* Steps of fewer rows had short prompts: they don't tell how many rows a step may have. */
#define FULL_STEP_ROWS 128

/* Returns the steps that the prompts take: a worker's steps compute as many rows as its largest one
 * did, and beside answers no more than took the most time so far. A part of a step counts as this
 * part, as prompts share steps. */
static double chunks_of(const struct candidate *worker, struct prompts prompts)
{
    const struct worker_learnt *learnt = worker->is.learnt;
    double each = learnt ? learnt->chunk_rows : 0;
    if (each <= 0)
        return prompts.requests > 1 ? prompts.requests : 1;
    if (each < FULL_STEP_ROWS)
        each = FULL_STEP_ROWS;
    double chunks = prompts.rows > each ? prompts.rows / each : 1;
    if (learnt->chunk_us > 0 && worker->books.drawing.rows) {
        const struct step_cost *cost = &learnt->steps.figures.cost;
        double rows_us =
            prompts.rows * cost->prefill_row_us + prompts.positions * cost->prefill_position_us;
        chunks = fmax(chunks, rows_us / learnt->chunk_us);
    }
    return chunks;
}

/* Returns the time of steps with all these prompts and the worker's drawing rows. */
static double prompts_us(const struct candidate *worker, struct prompts prompts,
                         enum cost_quantile quantile)
{
    const struct books_rows *drawing = &worker->books.drawing;
    if (prompts.rows <= 0)
        return 0;
    double chunks = chunks_of(worker, prompts);
    return chunks * step_us(worker, prompts.rows / chunks, prompts.positions / chunks,
                            drawing->rows, (double)drawing->context, quantile);
}

/* Returns the part of that time that the drawing rows wait for the prompts. */
static double beside_us(const struct candidate *worker, struct prompts prompts,
                        enum cost_quantile quantile)
{
    if (prompts.rows <= 0)
        return 0;
    double us = prompts_us(worker, prompts, quantile) -
                chunks_of(worker, prompts) * drawing_us(worker, quantile);
    return us > 0 ? us : 0;
}

/* Returns what the worker computes before a new prompt of this priority. */
static struct prompts prompts_before(const struct candidate *worker, enum priority priority)
{
    struct prompts before = {0};
    double all = 0, computed = 0;
    for (int i = 0; worker->books.prompts && i < PRIORITIES; i++) {
        const struct books_prefill *here = &worker->books.prefill[i];
        all += (double)here->rows;
        if (i != (int)priority && i != PRIORITY_HIGH && priority != PRIORITY_OFFLINE)
            continue; /* it comes after it */
        before.rows += (double)here->rows;
        before.positions += (double)here->positions;
        before.requests += here->requests;
        computed += (double)worker->computed_rows[i];
    }
    double left = before.rows > computed ? before.rows - computed : 0;
    before.positions *= before.rows > 0 ? left / before.rows : 0;
    before.rows = left;
    /* Others may use the worker too. A decode worker reports other work in tokens. */
    double reported = (double)worker->is.reported_tokens;
    if (worker->is.role == ROLE_PREFILL && reported > all)
        before.rows += reported - all;
    return before;
}

double predict_wait_us(const struct candidate *worker, enum priority priority,
                       enum cost_quantile quantile)
{
    return prompts_us(worker, prompts_before(worker, priority), quantile);
}

static struct prompts one_prompt(uint64_t cached, uint64_t rows)
{
    double r = (double)rows;
    return (struct prompts){
        .rows = r, .positions = r * (double)cached + r * (r - 1) / 2, .requests = 1};
}

double predict_prefill_us(const struct candidate *worker, uint64_t cached, uint64_t rows,
                          enum cost_quantile quantile)
{
    return prompts_us(worker, one_prompt(cached, rows), quantile);
}

/* --------------------------------------------------------------------------------- answers */

/* Rows that leave are replaced by others in a busy hour: a step that counts on their leaving would
 * make it look good to arrive late. */
double predict_step_us(const struct candidate *worker, double more_rows, double more_context,
                       enum cost_quantile quantile)
{
    const struct worker_books *books = &worker->books;
    double rows = books->drawing.rows + books->coming.rows + more_rows;
    double context =
        (double)books->drawing.context + (double)books->coming.context + more_rows * more_context;
    return step_us(worker, 0, 0, rows, context, quantile);
}

double predict_alone_step_us(const struct candidate *worker, double context,
                             enum cost_quantile quantile)
{
    return step_us(worker, 0, 0, 1, context, quantile);
}

double predict_room_us(const struct candidate *worker, double tokens, enum cost_quantile quantile)
{
    const struct worker_books *books = &worker->books;
    double pool = predict_pool_tokens(worker), each_us = drawing_us(worker, quantile);
    double before = (double)books->held_tokens - (double)books->drawing.context;
    double need = (before > 0 ? before : 0) + tokens, steps = 1, rows, context;
    double more = (double)books->drawing.context + need - pool, left = more;
    if (pool <= 0 || more <= 0 || each_us <= 0)
        return 0;
    if (need > pool) /* all that draw now leave, and others that come before it */
        return 2 * worker_books_mean_left(books) * each_us * need / pool;
    for (; steps < exp2(BOOKS_LENGTHS); steps *= 2) {
        worker_books_after(books, steps, &rows, &context);
        left = context + need - pool;
        if (left <= 0)
            break;
        more = left;
    }
    /* Between the last two: as if it were straight. */
    return each_us * (left <= 0 ? steps * (1 + more / (more - left)) / 2 : steps);
}

double predict_lane_rate(const struct candidate *prefill, const struct candidate *decode)
{
    double rates[] = {
        prefill && prefill->is.learnt ? (double)prefill->is.learnt->lane_bytes_per_second : 0,
        decode && decode->is.learnt ? (double)decode->is.learnt->lane_bytes_per_second : 0};
    if (rates[0] <= 0 || rates[1] <= 0)
        return rates[0] + rates[1];
    return rates[0] < rates[1] ? rates[0] : rates[1];
}

/* Returns the time that the handoff takes after the prompt is computed: the last chunk's bytes, or
 * all that the lane couldn't move in `compute_us`, or all that the reader's link still has to move
 * then. Handoffs that are not done count whole: others come for what has moved of them. */
static double handoff_us(const struct predict_choice *choice, double prompt, double rows,
                         double compute_us, struct prediction *out)
{
    double rate = predict_lane_rate(choice->prefill, choice->decode) / 1e6; /* bytes a us */
    if (rate <= 0)
        return 0;
    const struct worker_learnt *source = choice->prefill ? choice->prefill->is.learnt : NULL;
    const struct worker_learnt *reader = choice->decode->is.learnt;
    double each = reader && reader->kv_bytes_per_token > 0 ? reader->kv_bytes_per_token
                  : source                                 ? source->kv_bytes_per_token
                                                           : 0;
    if (each <= 0)
        return 0;
    double chunk = source ? source->chunk_rows : 0;
    double last = chunk > 0 && chunk < rows ? chunk : rows;
    double behind = prompt * each - rate * compute_us;
    double alone_us = (behind > last * each ? behind : last * each) / rate;
    /* It moves what one pair moves, at least: others may be slow, or have hung. */
    double link = fmax(reader ? (double)reader->link_bytes_per_second / 1e6 : 0, rate);
    double token_us = each / link;
    double ready_us =
        choice->way == PREDICT_READER ? choice->ready_us : out->wait_us + out->prefill_us;
    ready_us = fmax(ready_us, out->room_us); /* it waits for KV meanwhile */
    double before = (double)choice->decode->books.moving_tokens;
    out->link_each_us = prompt * token_us;
    out->link_us = fmax((before + prompt) * token_us - ready_us - alone_us, 0);
    return alone_us + out->link_us;
}

double predict_tolerance_us(uint64_t tpot_us, double expected_tokens, uint64_t drawn,
                            double drawing_us)
{
    if (!tpot_us)
        return INFINITY;
    if (!drawn)
        return (double)tpot_us;
    double left = expected_tokens - (double)drawn;
    left = left > 1 ? left : 1;
    return ((double)tpot_us * ((double)drawn + left - 1) - drawing_us) / left;
}

void predict_begun(struct predict_request *request, uint64_t ttft_us, uint64_t drawn,
                   double drawing_us)
{
    struct slo_objective *objective = &request->objective;
    double left_us = predict_tolerance_us(
        objective->tpot_us, (double)drawn + request->answer_tokens, drawn, drawing_us);
    request->age_us = (double)ttft_us;
    if (ttft_us <= objective->ttft_us)
        objective->ttft_us = 0;
    if (objective->tpot_us)
        objective->tpot_us = left_us > 1 ? (uint64_t)left_us : 1;
}

/* --------------------------------------------------------------------------------- a choice */

/* Returns how long a prompt that is computed waits for KV at the worker that reads it. */
static double room_after_us(const struct predict_choice *choice, const struct prediction *is)
{
    bool reads = choice->way == PREDICT_PAIR || choice->way == PREDICT_READER;
    double ready_us =
        choice->way == PREDICT_READER ? choice->ready_us : is->wait_us + is->prefill_us;
    return reads && is->room_us > ready_us ? is->room_us - ready_us : 0;
}

static void predict_answer(const struct predict_request *request,
                           const struct predict_choice *choice, const struct candidate *drawer,
                           double rows, enum cost_quantile quantile, struct prediction *out)
{
    double prompt = (double)request->prompt_tokens, steps = request->answer_tokens - 1;
    bool reads = choice->way == PREDICT_PAIR || choice->way == PREDICT_READER;
    double compute_us = choice->way == PREDICT_READER ? choice->ready_us : out->prefill_us;
    double moved_us = reads ? handoff_us(choice, prompt, rows, compute_us, out) : 0;
    out->step_before_us = predict_step_us(drawer, 0, 0, quantile);
    out->step_us = fmax(predict_step_us(drawer, 1, prompt + 1, quantile), out->step_before_us);
    double room_us = room_after_us(choice, out);
    out->gap_us = moved_us + room_us + out->step_us;
    out->known &= is_known(drawer);
    if (steps <= 0) {
        out->link_us = 0; /* it isn't handed off */
        return;
    }
    /* Prompts that the worker computes meanwhile lengthen its steps. A prompt of its own has had
     * them before it. */
    double beside =
        reads ? beside_us(drawer, prompts_before(drawer, PRIORITY_OFFLINE), quantile) : 0;
    /* Prompts that come later take as much of its time as others did lately. */
    double part = drawer->is.learnt ? worker_learnt_prompts(drawer->is.learnt) : 0;
    double later = out->step_us * part / (1 - part);
    out->tpot_us = out->step_us + (moved_us + room_us) / steps + fmax(beside / steps, later);
    out->device_us += steps * (out->step_us - out->step_before_us);
}

const struct candidate *predict_computes(const struct predict_choice *choice)
{
    return choice->way == PREDICT_LOCAL    ? choice->decode
           : choice->way != PREDICT_READER ? choice->prefill
                                           : NULL;
}

const struct candidate *predict_draws(const struct predict_choice *choice)
{
    return choice->way == PREDICT_MIRROR    ? choice->prefill
           : choice->way != PREDICT_PREFILL ? choice->decode
                                            : NULL;
}

void predict(const struct predict_request *request, const struct predict_choice *choice,
             enum cost_quantile quantile, struct prediction *out)
{
    bool local = choice->way == PREDICT_LOCAL || choice->way == PREDICT_MIRROR;
    const struct candidate *computes = predict_computes(choice), *draws = predict_draws(choice);
    uint64_t cached = choice->cached_tokens < request->prompt_tokens ? choice->cached_tokens
                                                                     : request->prompt_tokens - 1;
    uint64_t rows = request->prompt_tokens - cached; /* the last one is always computed */
    *out = (struct prediction){.known = true};
    if (draws) {
        double tokens = (double)request->prompt_tokens;
        out->room_us = predict_room_us(draws, tokens, quantile);
        out->room_each_us = predict_room_us(draws, 2 * tokens, quantile) - out->room_us;
    }
    if (computes) {
        out->wait_us = predict_wait_us(computes, request->priority, quantile);
        if (local && out->wait_us < out->room_us)
            out->wait_us = out->room_us;
        out->prefill_us = predict_prefill_us(computes, cached, rows, quantile);
        out->ttft_us = request->age_us + out->wait_us + out->prefill_us;
        out->beside_us =
            local ? beside_us(computes, one_prompt(cached, rows), quantile) : out->prefill_us;
        out->device_us = (local ? LOCAL_MORE : 1) * out->prefill_us;
        out->known = is_known(computes);
    }
    if (draws)
        predict_answer(request, choice, draws, (double)rows, quantile, out);
}

double predict_room_steps(const struct candidate *decode)
{
    const struct worker_books *books = &decode->books;
    double pool = predict_pool_tokens(decode), left = worker_books_mean_left(books);
    double all = (double)(books->promised_tokens - books->held_tokens); /* to draw */
    double rows = books->coming.rows, drawn_here = books->drawing.rows * left;
    double each = rows > 0 && all > drawn_here ? (all - drawn_here) / rows : 0;
    double drawing = left * ((double)books->drawing.context + drawn_here / 2);
    double coming = each * ((double)books->coming.context + rows * each / 2);
    double steps = pool > 0 ? (drawing + coming) / pool - fmax(left, each / 2) : 0;
    return steps > 0 ? steps : 0;
}

struct predict_times predict_times(const struct predict_request *request,
                                   const struct predict_choice *choice,
                                   const struct prediction *predicted, double tokens)
{
    const struct candidate *draws = predict_draws(choice);
    double prompt = (double)request->prompt_tokens, steps = tokens > 1 ? tokens - 1 : 0;
    double after_us = room_after_us(choice, predicted); /* it is room_us here */
    bool local = choice->way == PREDICT_LOCAL && draws;
    double wait_us =
        local ? predict_wait_us(draws, request->priority, COST_P50) : predicted->wait_us;
    struct predict_times times = {.prompt_us = wait_us + predicted->prefill_us,
                                  .alone_us = predicted->prefill_us};
    if (!draws || steps <= 0)
        return times;
    const struct worker_books *books = &draws->books;
    double pool = predict_pool_tokens(draws), step = predicted->step_us;
    double own = request->answer_tokens - 1;
    double more_us = own > 0 ? predicted->tpot_us - step - after_us / own : 0;
    double half_drawn = (double)(books->held_tokens + books->promised_tokens) / 2;
    if (pool > 0 && half_drawn > pool) { /* the others wait: steps are as those of a full pool */
        double rows = (double)books->drawing.rows + books->coming.rows;
        double full_us = step_us(draws, 0, 0, rows * pool / half_drawn, pool, COST_P50);
        step = full_us < step ? full_us : step;
    }
    times.room_us = predict_room_steps(draws) * step;
    times.token_us = step + fmax(more_us, 0);
    times.alone_us += predicted->gap_us - predicted->step_us - after_us - predicted->link_us +
                      steps * step_us(draws, 0, 0, 1, prompt + steps / 2, COST_P50);
    return times;
}

/* --------------------------------------------------------------------------------- memory */

/* Returns the most KV tokens that the worker will hold at once while an answer of `tokens` is
 * drawn there, with what the answer itself holds: rows leave as they end. */
static double peak_tokens(const struct worker_books *books, double prompt, double tokens)
{
    double most = 0;
    for (int i = 0; i < BOOKS_LENGTHS; i++) {
        double rows, context, steps = exp2(i) < tokens ? exp2(i) : tokens;
        worker_books_after(books, steps, &rows, &context);
        context += (double)books->coming.context + books->coming.rows * steps + prompt + steps;
        most = context > most ? context : most;
        if (steps >= tokens)
            break;
    }
    return most;
}

double predict_preemption(const struct candidate *decode, const struct predict_request *request)
{
    const struct worker_books *books = &decode->books;
    double pool = predict_pool_tokens(decode), prompt = (double)request->prompt_tokens;
    double own = (request->answer_p90_tokens - request->answer_tokens) / P90_SIGMAS;
    double sigma = sqrt((double)books->variance + own * own);
    if (pool <= 0)
        return 0;
    if ((double)books->promised_tokens + prompt + request->answer_tokens + 4 * sigma <= pool)
        return 0;
    double peak = peak_tokens(books, prompt, request->answer_tokens);
    return erfc((pool - peak) / (sigma + 1) * SQRT_HALF) / 2;
}

/* --------------------------------------------------------------------------------- errors */

/* The prior's P(ratio above): a logarithmic normal distribution round 1. */
static double prior_above(double octaves)
{
    return erfc(octaves * LN_2 / PRIOR_SIGMA * SQRT_HALF) / 2;
}

static double octaves_of_bin(double bin)
{
    return LEAST_OCTAVE + bin / PER_OCTAVE;
}

static void bring_up_to_date(struct predict_error *error)
{
    double all = error->total + PRIOR * SAMPLE, above = 0;
    error->above[PREDICT_ERROR_BINS] = 0;
    for (int i = PREDICT_ERROR_BINS - 1; i >= 0; i--) {
        above += error->bins[i];
        error->above[i] = (float)((above + PRIOR * SAMPLE * prior_above(octaves_of_bin(i))) / all);
    }
    error->above[0] = 1;
    int bin = 0;
    while (error->above[bin + 1] > 0.5F)
        bin++;
    double part = (error->above[bin] - 0.5) / (error->above[bin] - error->above[bin + 1]);
    error->median = (float)exp2(octaves_of_bin(bin + part));
}

void predict_error_learn(struct predict_error *error, double predicted_us, double measured_us)
{
    if (!(predicted_us > 0) || !(measured_us > 0))
        return;
    double bin = floor((log2(measured_us / predicted_us) - LEAST_OCTAVE) * PER_OCTAVE);
    bin = bin < 0 ? 0 : bin >= PREDICT_ERROR_BINS ? PREDICT_ERROR_BINS - 1 : bin;
    if (error->total >= SAMPLES * SAMPLE) {
        error->total = 0;
        for (int i = 0; i < PREDICT_ERROR_BINS; i++)
            error->total += error->bins[i] /= 2;
    }
    error->bins[(int)bin] += SAMPLE;
    error->total += SAMPLE;
    error->count++;
    bring_up_to_date(error);
}

double predict_error_median(const struct predict_error *error)
{
    return error->count ? (double)error->median : 1;
}

double predict_miss(const struct predict_error *error, double predicted_us, double objective_us)
{
    if (!(objective_us > 0) || !(predicted_us > 0))
        return 0;
    double octaves = log2(objective_us / predicted_us);
    if (!error->count)
        return prior_above(octaves);
    double bin = (octaves - LEAST_OCTAVE) * PER_OCTAVE;
    if (bin <= 0)
        return 1;
    if (bin >= PREDICT_ERROR_BINS)
        return 0;
    double part = bin - floor(bin);
    const float *above = &error->above[(int)bin];
    return (1 - part) * (double)above[0] + part * (double)above[1];
}

double predict_miss_hopeless(const struct predict_error *error, double predicted_us,
                             double objective_us)
{
    double beyond = predicted_us * predict_error_median(error) / objective_us;
    if (!(objective_us > 0) || !(predicted_us > 0))
        return 0;
    if (beyond >= 1)
        return 1 - exp2((1 - beyond) / NARROWEST) / 2;
    double miss = predict_miss(error, predicted_us, objective_us);
    return miss < 0.5 ? miss : 0.5;
}
