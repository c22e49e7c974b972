/* The requests of a tournament, and the clients that send them to a cluster in virtual time. Equal
 * seeds make equal requests. Built from `baton bench serve`'s plans (load_plan.h). */
#ifndef BATON_TESTS_BENCH_TOURNAMENT_WORKLOAD_H
#define BATON_TESTS_BENCH_TOURNAMENT_WORKLOAD_H

#include "common/base/domain/slo.h"
#include "common/cli/load_plan.h"
#include "router/planner/virtual_cluster.h"

#define WORKLOAD_CONTEXT 16384 /* tokens of prompt and answer at most */

struct workload_ask {
    const char *data; /* the folder of the traces; NULL: none */
    double rate;      /* requests a second, on average */
    uint32_t count;
    uint64_t seed;
    struct load_lengths lengths; /* the workload's */
};

struct workload {
    const char *name, *help;
    struct slo_objective objective, other; /* other: every second request's class; 0: one class */
    /* As its clients set it, or the answer's length if that is more. other_max_tokens: those of the
     * other class; 0: the same. */
    uint32_t max_tokens, other_max_tokens;
    bool needs_data;
    enum status (*build)(struct load_plan *plan, const struct workload_ask *ask, struct error *err);
    struct load_lengths lengths; /* workload_build_equal's */
};
/* Requests of one length, by a Poisson process. */
enum status workload_build_equal(struct load_plan *plan, const struct workload_ask *ask,
                                 struct error *err) WARN_UNUSED;
extern const struct workload workloads[];
extern const size_t workload_count;
/* NULL: there is none of this name. */
const struct workload *workload_find(const char *name);

/* The clients of one plan. */
struct audience {
    const struct load_plan *plan;
    const struct workload *workload;
    uint64_t seed;
    /* From the request `longer_from` on answers are so many times as long; 0: never. */
    double longer;
    uint32_t longer_from;
    uint64_t timeout_us; /* each request's; 0: none */
    bool classless;      /* requests have no class: objectives are the observer's alone */
    /* Its own. */
    struct load_order order;
    uint32_t *request_of, *id_of;     /* [count]: by id, and by request */
    uint32_t *prompts, *answers;      /* [count]: tokens, by request */
    struct virtual_outcome *outcomes; /* [count], by id */
    uint32_t taken, ended;
};
/* The caller has set plan, workload and seed. */
void audience_open(struct audience *audience);
void audience_close(struct audience *audience);
struct virtual_clients audience_clients(struct audience *audience);
/* Returns the class of a request of the plan: 0, or 1 for the workload's other one. */
uint32_t audience_class(const struct audience *audience, uint32_t request);

#endif
