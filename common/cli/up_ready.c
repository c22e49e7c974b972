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
        if (*ready->models[i].isa)
            printf("  isa        %s  (what the workers compute with)\n", ready->models[i].isa);
    }
}

/* The same by HTTP, of the first model. */
static void print_curl(const struct up_ready *ready)
{
    const struct up_settings *settings = ready->settings;
    if (!*ready->file->openai)
        return;
    printf("  curl -s %s%s%s://%s/v1/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"model\": \"%s\", \"max_tokens\": 64, \"prompt\": %s}'\n",
           *settings->tls.cert ? "--cacert FILE " : "",
           *settings->api_keys ? "-H \"Authorization: Bearer $KEY\" " : "",
           *settings->tls.cert ? "https" : "http", ready->file->openai, ready->models[0].name,
           has_tokenizer(&settings->list.items[0]) ? "\"Once upon a time\"" : "[1, 2, 3]");
}

static void print_more(const struct up_ready *ready)
{
    const struct up_settings *settings = ready->settings;
    bool several = settings->list.count > 1;
    if (has_tokenizer(&settings->list.items[0]))
        printf("  %s/baton chat%s%s%s%s\n", ready->bin_dir,
               *settings->tls.cert ? " --tls-ca FILE" : "",
               *settings->api_keys ? " --api-key-file FILE" : "", several ? " --model " : "",
               several ? ready->models[0].name : "");
    printf("  %s/baton top%s\n\nCtrl-C drains and stops.\n", ready->bin_dir,
           *settings->metrics_tls.cert ? " --tls-ca FILE" : "");
}

static void print_examples(const struct up_ready *ready)
{
    const struct up_settings *settings = ready->settings;
    const struct model_list *list = &settings->list;
    printf("\nTry:\n\n");
    for (size_t i = 0; i < list->count; i++) {
        char model[160] = "";
        if (list->count > 1)
            snprintf(model, sizeof model, "--model %s ", ready->models[i].name);
        printf("  %s/baton generate %s%s%s--max-tokens 64 %s\n", ready->bin_dir,
               *settings->tls.cert ? "--tls-ca FILE " : "",
               *settings->api_keys ? "--api-key-file FILE " : "", model,
               has_tokenizer(&list->items[i])
                   ? "\"Once upon a time\""
                   : "--prompt-ids 1,2,3   (the model has no tokenizer)");
    }
    print_curl(ready);
    print_more(ready);
}

void up_ready_print(const struct up_ready *ready)
{
    const struct cluster_file *file = ready->file;
    print_models(ready);
    printf("  gRPC       %s\n", file->grpc);
    if (*file->openai)
        printf("  OpenAI     %s://%s/v1\n", *ready->settings->tls.cert ? "https" : "http",
               file->openai);
    printf("  HTTP       %s://%s/  (status page; /status, /traces, /metrics, /healthz)\n",
           *ready->settings->metrics_tls.cert ? "https" : "http", file->http);
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
