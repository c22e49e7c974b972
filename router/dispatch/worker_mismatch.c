#include "router/dispatch/worker_mismatch.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What keeps two workers from handing KV over, in words; "": nothing. */
static void say_differences(const struct worker_info *a, const struct worker_info *b, char *text,
                            size_t size)
{
    char model[64] = "", layout[64] = "", numerics[160] = "";
    if (a->model_hash != b->model_hash)
        snprintf(model, sizeof model, "; model %016" PRIx64 ", not %016" PRIx64, a->model_hash,
                 b->model_hash);
    if (a->block_tokens != b->block_tokens)
        snprintf(layout, sizeof layout, "; block-tokens %u, not %u", a->block_tokens,
                 b->block_tokens);
    else if (a->layout_hash != b->layout_hash)
        snprintf(layout, sizeof layout, "; KV layout %016" PRIx64 ", not %016" PRIx64,
                 a->layout_hash, b->layout_hash);
    if (a->numerics_id != b->numerics_id)
        snprintf(numerics, sizeof numerics, "; numerics %s, not %s", a->numerics_name,
                 b->numerics_name);
    snprintf(text, size, "%s%s%s", model, layout, numerics);
    if (*text)
        memmove(text, text + 2, strlen(text + 2) + 1);
}

/* Both serve, each answer from one of them alone: right during an update, and else most likely a
 * mistake. */
static void warn_of_other_weights(const struct workers *workers, const struct worker *joined)
{
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        if (worker->model != joined->model || worker->state == WORKER_LEAVING ||
            worker->info.model_hash == joined->info.model_hash)
            continue;
        log_warn_lifecycle(
            "workers",
            "worker=%s other=%s model=%s model_hash=%016" PRIx64 " other_hash=%016" PRIx64
            " msg=\"two sets of weights serve under one name: which of them answers a "
            "request is a matter of load\"",
            joined->info.name, worker->info.name, joined->info.model, joined->info.model_hash,
            worker->info.model_hash);
        return;
    }
}

/* One that fits none of the others may look healthy, and never gets a request. */
static void warn_of_misfit(const struct workers *workers, const struct worker *joined)
{
    const struct worker_info *info = &joined->info;
    char differs[320] = "";
    const char *other = NULL;
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        if (worker->info.role == info->role || worker->model != joined->model ||
            worker->state == WORKER_LEAVING)
            continue;
        say_differences(info, &worker->info, differs, sizeof differs);
        other = worker->info.name;
        if (!*differs)
            return;
    }
    if (other)
        log_warn_lifecycle("workers",
                           "worker=%s role=%s other=%s differs=\"%s\" msg=\"fits no worker of the "
                           "other role: gets no request with them\"",
                           info->name, worker_role_name(info->role), other, differs);
}

void worker_mismatch_warn(const struct workers *workers, const struct worker *joined)
{
    warn_of_misfit(workers, joined);
    warn_of_other_weights(workers, joined);
}
