#include "router/request_constraint.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/constrain/constraint.h"
#include "common/domain/content_hash.h"
#include "common/json/json_quote.h"
#include "router/tool_calls_text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A collision costs no more than what it saves: workers compile the text itself, and refuse it. */
struct check {
    uint64_t hash, last_asked; /* the latter 0: free */
};

struct constraint_checks {
    pthread_mutex_t mutex;
    struct check items[CONSTRAINT_CHECKS_MAX];
    uint64_t clock;
    struct constraint_checks_counts counts;
};

struct constraint_checks *constraint_checks_create(void)
{
    struct constraint_checks *checks = calloc(1, sizeof *checks);
    if (checks)
        pthread_mutex_init(&checks->mutex, NULL);
    return checks;
}

void constraint_checks_destroy(struct constraint_checks *checks)
{
    if (!checks)
        return;
    pthread_mutex_destroy(&checks->mutex);
    free(checks);
}

struct constraint_checks_counts constraint_checks_counts(struct constraint_checks *checks)
{
    pthread_mutex_lock(&checks->mutex);
    struct constraint_checks_counts counts = checks->counts;
    pthread_mutex_unlock(&checks->mutex);
    return counts;
}

/* Its place, or that of the one to go. */
static struct check *place_of(struct constraint_checks *checks, uint64_t hash)
{
    struct check *oldest = checks->items;
    for (size_t i = 0; i < CONSTRAINT_CHECKS_MAX; i++) {
        struct check *check = &checks->items[i];
        if (check->last_asked && check->hash == hash)
            return check;
        if (check->last_asked < oldest->last_asked)
            oldest = check;
    }
    return oldest;
}

static bool find(struct constraint_checks *checks, uint64_t hash)
{
    if (!checks)
        return false;
    pthread_mutex_lock(&checks->mutex);
    struct check *check = place_of(checks, hash);
    bool found = check->last_asked && check->hash == hash;
    if (found)
        check->last_asked = ++checks->clock;
    checks->counts.found += found;
    pthread_mutex_unlock(&checks->mutex);
    return found;
}

static void remember(struct constraint_checks *checks, uint64_t hash)
{
    if (!checks)
        return;
    pthread_mutex_lock(&checks->mutex);
    *place_of(checks, hash) = (struct check){hash, ++checks->clock};
    checks->counts.compiled++;
    pthread_mutex_unlock(&checks->mutex);
}

static enum reason refuse(struct error *err, const char *what)
{
    error_prefix(err, STATUS_INVALID, "%s", what);
    return REASON_INVALID_CONSTRAINT;
}

static const char *const names[CONSTRAINT_KINDS] = {[CONSTRAINT_JSON_OBJECT] = "json_object",
                                                    [CONSTRAINT_JSON_SCHEMA] = "json_schema",
                                                    [CONSTRAINT_REGEX] = "regex",
                                                    [CONSTRAINT_CHOICE] = "choice",
                                                    [CONSTRAINT_TOOL_CALLS] = "tool_calls"};

static enum reason compile(struct constraint_checks *checks, const struct constraint_source *source,
                           struct error *err)
{
    uint64_t hash =
        content_hash(source->text, source->length) ^ (source->kind * 0x9e3779b97f4a7c15);
    struct constraint *constraint;
    if (find(checks, hash))
        return REASON_NONE;
    if (constraint_compile(source->kind, source->text, source->length, &constraint, err) !=
        STATUS_OK)
        return refuse(err, names[source->kind]);
    constraint_destroy(constraint);
    remember(checks, hash);
    return REASON_NONE;
}

/* A JSON array. */
static void add_choices(const Baton__V1__Choices *choices, struct str *text)
{
    str_add(text, "[");
    for (size_t i = 0; i < choices->n_texts; i++) {
        if (i)
            str_add(text, ",");
        json_quote(text, choices->texts[i], strlen(choices->texts[i]));
    }
    str_add(text, "]");
}

/* False: it says nothing that is a constraint; err. */
static bool read_kind(const Baton__V1__Constraint *message, enum constraint_kind *kind,
                      struct str *text, struct error *err)
{
    switch (message->kind_case) {
    case BATON__V1__CONSTRAINT__KIND_JSON_OBJECT:
        *kind = CONSTRAINT_JSON_OBJECT;
        if (!message->json_object)
            error_set(err, STATUS_INVALID, "json_object can only be true");
        return message->json_object;
    case BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA:
        *kind = CONSTRAINT_JSON_SCHEMA;
        str_add(text, message->json_schema);
        return true;
    case BATON__V1__CONSTRAINT__KIND_REGEX:
        *kind = CONSTRAINT_REGEX;
        str_add(text, message->regex);
        return true;
    case BATON__V1__CONSTRAINT__KIND_CHOICE:
        *kind = CONSTRAINT_CHOICE;
        add_choices(message->choice, text);
        return true;
    case BATON__V1__CONSTRAINT__KIND_TOOL_CALLS:
        *kind = CONSTRAINT_TOOL_CALLS;
        tool_calls_write(message->tool_calls, text);
        return true;
    default:
        error_set(err, STATUS_INVALID,
                  "it has none of json_object, json_schema, regex, choice and tool_calls");
        return false;
    }
}

static enum reason read_text(struct constraint_checks *checks, const Baton__V1__Constraint *message,
                             struct str *text, struct constraint_source **source, struct error *err)
{
    enum constraint_kind kind;
    if (!read_kind(message, &kind, text, err))
        return refuse(err, "constraint");
    if (text->truncated) {
        error_set(err, STATUS_LIMIT, "it has more than %u bytes", CONSTRAINT_MAX_TEXT_BYTES);
        return refuse(err, names[kind]);
    }
    struct constraint_source *made = constraint_source_create(kind, text->data, text->length);
    ASSERT(made);
    enum reason reason = compile(checks, made, err);
    if (reason)
        free(made);
    else
        *source = made;
    return reason;
}

enum reason request_constraint_read(struct constraint_checks *checks,
                                    const Baton__V1__Constraint *message,
                                    const struct request_model *model,
                                    struct constraint_source **source, struct error *err)
{
    struct str text;
    *source = NULL;
    if (!message)
        return REASON_NONE;
    if (!model->tokens_have_text) {
        error_set(
            err, STATUS_INVALID,
            "model \"%s\" has no tokenizer.json with a decoder, so tokens have no text that a "
            "constraint could be kept for",
            model->name);
        return REASON_NO_TOKENIZER;
    }
    str_init(&text, CONSTRAINT_MAX_TEXT_BYTES);
    enum reason reason = read_text(checks, message, &text, source, err);
    str_deinit(&text);
    return reason;
}
