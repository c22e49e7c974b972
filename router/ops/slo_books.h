/* Attainment and goodput of the router's SLO classes: for /metrics, /status and placement's error
 * budgets. Each choice of a request counts as a request of its own.
 *
 *   attained    answered, within all objectives
 *   missed      answered too late; failed because of the cluster: no workers, a deadline that
 *               passed; or rejected for lack of room or of time
 *   uncounted   refused because of the client (400, 401, 403, its quota, a slow reader), or left by
 *               it while all objectives could still be attained
 *
 * Any thread; one lock, held for a few additions. Times are clock_now_us(). NULL books count
 * nothing: the router has no classes. */
#ifndef BATON_ROUTER_OPS_SLO_BOOKS_H
#define BATON_ROUTER_OPS_SLO_BOOKS_H

#include "common/base/domain/slo.h"
#include "common/base/observe/metrics.h"
#include "router/reasons.h"

#define SLO_MINUTE_US 60000000u
#define SLO_HOUR_US   3600000000u
#define SLO_DECILES   10

/* One ended request. */
struct slo_ending {
    uint32_t slo_class; /* SLO_NONE: counted nowhere */
    struct slo_objective objective;
    enum reason reason; /* REASON_NONE: answered */
    /* So far, if it didn't end well; ttft_us is its age if there was no token. `ok` isn't read. */
    struct slo_outcome outcome;
    struct slo_prediction predicted;
    uint32_t prompt_tokens; /* 0: refused before they were counted */
};

struct slo_count {
    uint64_t attained, missed;
    uint64_t missed_by[SLO_KINDS]; /* a request may miss several */
};

/* Predictions against measurements of the newest 1,000 answers or so. */
struct slo_accuracy {
    double count;                     /* 0: nothing was predicted */
    double predicted_us, measured_us; /* means */
    double error;                     /* mean of |measured - predicted| / predicted */
};

/* A tenth of the newest 65,536 requests or so, by prompt length. */
struct slo_decile {
    uint32_t to_tokens; /* the longest prompt in it, to a fifth */
    double attained;    /* share, 0 .. 1 */
};

struct slo_figures {
    struct slo_count minute, hour, ever;
    uint64_t uncounted;
    /* The share of the last hour's allowed misses that is left: 1 if there was none, below 0 if
     * there were more than the percentile allows. */
    double error_budget_left;
    struct slo_accuracy ttft, tpot;
    uint32_t decile_count; /* SLO_DECILES, or 0: fewer requests than that */
    struct slo_decile deciles[SLO_DECILES];
};

struct slo_books;

/* Registers the counters of each class. `classes` must outlive the books. *books is NULL if there
 * are none. STATUS_LIMIT: no memory. */
enum status slo_books_create(const struct slo_classes *classes, struct metrics *metrics,
                             struct slo_books **books) WARN_UNUSED;
void slo_books_destroy(struct slo_books *books);
/* NULL: there are none. */
const struct slo_classes *slo_books_classes(const struct slo_books *books);

/* Returns how the request counts. PURE. */
struct slo_verdict slo_judge(const struct slo_ending *ending);
void slo_books_ended(struct slo_books *books, const struct slo_ending *ending, uint64_t now_us);
/* Counts a request that was refused before its fields were read. `class_name`: NULL or "": the
 * default class; a name that isn't known counts nowhere. */
void slo_books_refused(struct slo_books *books, const char *class_name, enum reason reason,
                       uint64_t now_us);
void slo_books_read(struct slo_books *books, uint32_t slo_class, uint64_t now_us,
                    struct slo_figures *figures);
/* Appends [{...}, ...] for /status, one object a class; [] without classes. `devices`: workers that
 * are up, for goodput per device. */
void slo_books_json(struct slo_books *books, uint32_t devices, uint64_t now_us, struct str *out);
/* Brings the gauges up to date. Call before metrics_render. */
void slo_books_show(struct slo_books *books, uint64_t now_us);

#endif
