/* SLO classes: the objectives that a request is served by, and whether an answer attained them.
 * PURE, plain data. Times are in microseconds.
 *
 * A class is one row of the setting slo-class, its words in any order after the name:
 *
 *     name=chat,ttft=400ms,tpot=40ms,itl=200ms,e2e=30s,p=90,priority=high
 *     name=batch,e2e=1h,offline
 *
 * Several rows stand behind each other, with commas or semicolons: `name=` begins the next one, and
 * must stand behind a semicolon, which joins the texts of several flags. At least `p`
 * percent of a class's requests are meant to attain all of its objectives. A request attains if
 * TTFT and TPOT (DistServe, section 2.1), and its longest gap and whole time, are each no more than
 * the objective. */
#ifndef BATON_BASE_DOMAIN_SLO_H
#define BATON_BASE_DOMAIN_SLO_H

#include "common/base/domain/priority.h"
#include "common/base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define SLO_MAX_CLASSES      32
#define SLO_MAX_NAME_BYTES   32
#define SLO_MAX_ROWS_BYTES   8192 /* the whole text of the rows, with its NUL */
#define SLO_ROWS_JOINT       ';'
#define SLO_MAX_US           (24 * 3600 * (uint64_t)1000000)
#define SLO_MIN_PERCENTILE   50.0
#define SLO_MAX_PERCENTILE   99.99
#define SLO_USUAL_PERCENTILE 90.0
#define SLO_NONE             UINT32_MAX /* the index of no class */

/* 0: no objective. */
struct slo_objective {
    uint64_t ttft_us; /* from arrival to the first token */
    uint64_t tpot_us; /* mean time of each token after the first */
    uint64_t itl_us;  /* longest gap between two tokens */
    uint64_t e2e_us;  /* from arrival to the last token */
};

struct slo_class {
    char name[SLO_MAX_NAME_BYTES + 1];
    struct slo_objective objective;
    double percentile;      /* how many of its requests are meant to attain: SLO_MIN_ .. SLO_MAX_ */
    enum priority priority; /* its requests', if they give none */
    bool offline;           /* priority is offline: takes what the others leave */
};

struct slo_classes {
    struct slo_class items[SLO_MAX_CLASSES];
    uint32_t count;    /* 0: there are no objectives */
    uint32_t standard; /* index of the class of requests that name none; SLO_NONE: no class */
};

/* The times that placement expects of a request; 0: not known. */
struct slo_prediction {
    uint64_t ttft_us, tpot_us;
};

/* The objectives, in this order in `struct slo_objective`, and beside them a bit for a request that
 * failed, and one for a request that was rejected for lack of room or of time. */
enum slo_kind { SLO_TTFT, SLO_TPOT, SLO_ITL, SLO_E2E, SLO_FAILED, SLO_REJECTED, SLO_KINDS };
extern const char *const slo_kind_names[SLO_KINDS]; /* "ttft", ..., "failed", "rejected" */

/* How a request ended. */
struct slo_outcome {
    bool ok; /* false: rejected, failed, or cut off by its deadline */
    uint64_t ttft_us, e2e_us, longest_gap_us;
    uint32_t answer_tokens;
};

/* Parses the rows, "" for none. `standard`: the name of the class of requests that name none; "":
 * the only class, or none where there are several. Appends one line a mistake to `mistakes`.
 * Returns true, and writes *classes, if it appended none. */
bool slo_classes_parse(const char *rows, const char *standard, struct slo_classes *classes,
                       struct str *mistakes);
/* Returns the class's index; SLO_NONE: there is none of this name. */
uint32_t slo_find(const struct slo_classes *classes, struct text name);
/* The same for the name that a request gives; NULL or "": the default class. */
uint32_t slo_choose(const struct slo_classes *classes, const char *name);
/* Appends "chat, code": the names, for a sentence. */
void slo_add_names(const struct slo_classes *classes, struct str *out);

/* Appends a time of an objective in the largest unit that has it as a whole number: "400 ms",
 * "1 h". */
void slo_add_time(uint64_t us, struct str *out);

/* Loosens a class's objective as a request asks (0: it doesn't ask). STATUS_INVALID: one of the
 * asked is tighter than the class's, or the class has none of its kind. STATUS_LIMIT: one is above
 * SLO_MAX_US. *err names it, and *objective is as it was. */
enum status slo_loosen(struct slo_objective *objective, const struct slo_objective *asked,
                       struct error *err) WARN_UNUSED;

/* An answer of one token has no TPOT, and attains any. A request that isn't `ok` attains none. */
bool slo_attained(const struct slo_objective *objective, const struct slo_outcome *outcome);
/* The same, with the reasons: a bit 1 << enum slo_kind for each objective that was missed. One that
 * isn't `ok` has SLO_FAILED alone. 0: attained. */
unsigned slo_missed(const struct slo_objective *objective, const struct slo_outcome *outcome);
/* Appends "ttft,tpot": the names of these bits. */
void slo_add_missed(unsigned missed, struct str *out);

/* How an ended request counts for its class. */
struct slo_verdict {
    bool counts;     /* false: it ended because of its client */
    unsigned missed; /* the bits of slo_missed, or SLO_REJECTED alone */
};
/* Returns "attained", "missed" or "uncounted". */
const char *slo_verdict_name(struct slo_verdict verdict);

#endif
