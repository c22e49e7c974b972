#include "common/cli/up_ready.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static bool has_tokenizer(const struct model_entry *model)
{
    char path[sizeof model->dir + sizeof "/tokenizer.json"];
    snprintf(path, sizeof path, "%s/tokenizer.json", model->dir);
    return access(path, F_OK) == 0;
}

static void print_models(const struct up_ready *ready)
{
    const struct up_settings *settings = ready->settings;
    const struct model_list *list = &settings->list;
    printf("\nBaton serves ");
    if (list->count == 1)
        printf("%s: ", list->items[0].dir);
    else
        printf("%zu models, each with ", list->count);
    printf("%" PRIu64 " prefill + %" PRIu64 " decode, %s, %" PRIu64 " thread%s each\n\n",
           settings->prefill, settings->decode, up_compute_names[settings->compute], ready->threads,
           ready->threads == 1 ? "" : "s");
    for (size_t i = 0; i < list->count; i++) {
        if (list->count > 1)
            printf("  model      %s  %s\n", ready->models[i].name, list->items[i].dir);
        if (*ready->models[i].numerics)
            printf("  numerics   %s\n", ready->models[i].numerics);
    }
}

static void print_examples(const struct up_ready *ready)
{
    const struct model_list *list = &ready->settings->list;
    printf("\nTry:\n\n");
    for (size_t i = 0; i < list->count; i++) {
        char model[160] = "";
        if (list->count > 1)
            snprintf(model, sizeof model, "--model %s ", ready->models[i].name);
        printf("  %s/baton generate %s--max-tokens 64 %s\n", ready->bin_dir, model,
               has_tokenizer(&list->items[i])
                   ? "\"Once upon a time\""
                   : "--prompt-ids 1,2,3   (the model has no tokenizer)");
    }
    printf("  %s/baton chat%s%s\n  %s/baton top\n\nCtrl-C drains and stops.\n", ready->bin_dir,
           list->count > 1 ? " --model " : "", list->count > 1 ? ready->models[0].name : "",
           ready->bin_dir);
}

void up_ready_print(const struct up_ready *ready)
{
    const struct cluster_file *file = ready->file;
    print_models(ready);
    printf("  gRPC       %s\n  HTTP       http://%s/  (status page; /status, /traces, /metrics, "
           "/healthz)\n",
           file->grpc, file->http);
    for (size_t i = 1; i < file->count; i++)
        printf("  %-10s %s  pid %d\n", file->members[i].name, file->members[i].address,
               (int)file->members[i].pid);
    if (*file->logs)
        printf("  logs       %s%s\n", file->logs,
               ready->own_log_dir ? "  (removed after an end in order; --log-dir DIR keeps them)"
                                  : "");
    print_examples(ready);
    fflush(stdout);
}
