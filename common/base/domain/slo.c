#include "common/base/domain/slo.h"

#include "common/base/domain/api_key.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>

#define SHOWN_BYTES 60 /* the most of a word that a sentence shows */

const char *const slo_kind_names[SLO_KINDS] = {"ttft", "tpot", "itl", "e2e", "failed", "rejected"};

/* The place of each objective, by enum slo_kind. */
static const size_t places[SLO_FAILED] = {[SLO_TTFT] = offsetof(struct slo_objective, ttft_us),
                                          [SLO_TPOT] = offsetof(struct slo_objective, tpot_us),
                                          [SLO_ITL] = offsetof(struct slo_objective, itl_us),
                                          [SLO_E2E] = offsetof(struct slo_objective, e2e_us)};

/* One word of a row: `name`, or `name=value`. */
struct word {
    char name[SHOWN_BYTES + 1], value[SHOWN_BYTES + 1]; /* cut */
    bool has_value;
};

/* The row that is read, and the mistakes so far. */
struct parse {
    struct slo_classes classes;
    uint32_t rows;        /* also those that have no place in `classes` */
    struct slo_class row; /* the one that is read */
    bool open, named;     /* a row is read; its name is good */
    bool has_kind[SLO_FAILED], has_percentile, has_priority;
    struct str *mistakes;
};

/* `code`: what scripts may match; sentences may change. */
static __attribute__((format(printf, 3, 4))) void complain(struct parse *parse, const char *code,
                                                           const char *format, ...)
{
    struct error line;
    va_list args;
    va_start(args, format);
    error_vset(&line, STATUS_INVALID, format, args);
    va_end(args);
    str_addf(parse->mistakes, "slo-class: %s (%s)\n", line.text, code);
}

/* Returns the row's name for a sentence. */
static const char *row_name(const struct parse *parse)
{
    return parse->named ? parse->row.name : "without a valid name";
}

static void end_row(struct parse *parse)
{
    struct slo_class *row = &parse->row;
    bool some = row->offline;
    if (!parse->open)
        return;
    for (size_t i = 0; i < SLO_FAILED; i++)
        some |= parse->has_kind[i];
    if (!some)
        complain(parse, "slo_no_objective",
                 "class %s has no objective: give ttft, tpot, itl or e2e, or offline",
                 row_name(parse));
    if (row->offline && parse->has_priority && row->priority != PRIORITY_OFFLINE)
        complain(parse, "slo_offline_priority",
                 "class %s is offline and has priority=%s: leave one of them out", row_name(parse),
                 priority_names[row->priority]);
    if (row->offline || row->priority == PRIORITY_OFFLINE) {
        row->offline = true;
        row->priority = PRIORITY_OFFLINE;
    }
    if (parse->classes.count < SLO_MAX_CLASSES)
        parse->classes.items[parse->classes.count++] = *row;
    parse->open = false;
}

static void begin_row(struct parse *parse, const struct word *word)
{
    end_row(parse);
    parse->rows++;
    parse->open = true;
    parse->row = (struct slo_class){.percentile = SLO_USUAL_PERCENTILE};
    memset(parse->has_kind, 0, sizeof parse->has_kind);
    parse->has_percentile = parse->has_priority = false;
    size_t length = strlen(word->value);
    parse->named = length <= SLO_MAX_NAME_BYTES && api_key_name(word->value, length);
    if (!parse->named) {
        complain(parse, "slo_name", "name=%s must be 1 to %d letters, digits, '-', '_' or '.'",
                 word->value, SLO_MAX_NAME_BYTES);
        return;
    }
    memcpy(parse->row.name, word->value, length + 1);
    if (slo_find(&parse->classes, text_from(parse->row.name)) != SLO_NONE)
        complain(parse, "slo_name_twice", "two classes have the name %s", parse->row.name);
}

static void read_objective(struct parse *parse, size_t kind, const struct word *word)
{
    uint64_t *us = (uint64_t *)((char *)&parse->row.objective + places[kind]);
    if (parse->has_kind[kind])
        complain(parse, "slo_word_twice", "class %s has %s= twice", row_name(parse), word->name);
    else if (!str_to_duration_us(word->value, us))
        complain(parse, "slo_time",
                 "class %s: %s=%s must be a whole number with a unit, us, ms, s, m or h (400ms)",
                 row_name(parse), word->name, word->value);
    else if (*us == 0 || *us > SLO_MAX_US)
        complain(parse, "slo_time_range",
                 "class %s: %s=%s must be in 1us .. 24h; leave it out if it doesn't matter",
                 row_name(parse), word->name, word->value);
    parse->has_kind[kind] = true;
}

/* Reads p= or priority=. */
static void read_setting(struct parse *parse, const struct word *word, bool *seen)
{
    bool is_p = seen == &parse->has_percentile;
    size_t length = strlen(word->value);
    if (*seen)
        complain(parse, "slo_word_twice", "class %s has %s= twice", row_name(parse), word->name);
    else if (is_p && !str_to_double(word->value, SLO_MIN_PERCENTILE, SLO_MAX_PERCENTILE,
                                    &parse->row.percentile))
        complain(parse, "slo_percentile",
                 "class %s: p=%s must be a number in %g .. %g: percent of its requests that are "
                 "meant to attain",
                 row_name(parse), word->value, SLO_MIN_PERCENTILE, SLO_MAX_PERCENTILE);
    else if (!is_p && !priority_find(word->value, length, &parse->row.priority))
        complain(parse, "slo_priority", "class %s: priority=%s must be normal, high or offline",
                 row_name(parse), word->value);
    *seen = true;
}

static void read_word(struct parse *parse, const struct word *word)
{
    bool begins = word->has_value && !strcmp(word->name, "name");
    if (begins) {
        begin_row(parse, word);
    } else if (!parse->open) {
        complain(parse, "slo_row_without_name",
                 "'%s%s' stands in front of name=: each row, and each --slo-class, begins with "
                 "its name, as name=chat,ttft=400ms,tpot=40ms,p=90",
                 word->name, word->has_value ? "=" : "");
    } else if (!word->has_value && !strcmp(word->name, "offline")) {
        parse->row.offline = true;
    } else if (word->has_value && !strcmp(word->name, "p")) {
        read_setting(parse, word, &parse->has_percentile);
    } else if (word->has_value && !strcmp(word->name, "priority")) {
        read_setting(parse, word, &parse->has_priority);
    } else {
        for (size_t i = 0; i < SLO_FAILED; i++)
            if (word->has_value && !strcmp(word->name, slo_kind_names[i])) {
                read_objective(parse, i, word);
                return;
            }
        complain(parse, "slo_word",
                 "class %s: '%s%s' is none of name=, ttft=, tpot=, itl=, e2e=, p=, priority=, "
                 "offline",
                 row_name(parse), word->name, word->has_value ? "=" : "");
    }
}

/* Copies a piece of text without the blanks around it, cut to SHOWN_BYTES. */
static void take(char out[SHOWN_BYTES + 1], const char *from, const char *end)
{
    static const char blanks[] = " \t\r\n";
    while (from < end && strchr(blanks, *from))
        from++;
    while (end > from && strchr(blanks, end[-1]))
        end--;
    size_t length = (size_t)(end - from) < SHOWN_BYTES ? (size_t)(end - from) : SHOWN_BYTES;
    memcpy(out, from, length);
    out[length] = 0;
}

static void find_standard(struct parse *parse, const char *standard)
{
    struct slo_classes *classes = &parse->classes;
    classes->standard = classes->count == 1 ? 0 : SLO_NONE;
    if (!*standard)
        return;
    classes->standard = slo_find(classes, text_from(standard));
    struct str names;
    str_init(&names, 256);
    slo_add_names(classes, &names);
    if (!classes->count)
        str_addf(parse->mistakes,
                 "slo-default is %.60s, but there is no slo-class row: give one, or leave "
                 "slo-default out (slo_default)\n",
                 standard);
    else if (classes->standard == SLO_NONE)
        str_addf(parse->mistakes, "slo-default %.60s is no class: there are %s (slo_default)\n",
                 standard, names.data);
    str_deinit(&names);
}

bool slo_classes_parse(const char *rows, const char *standard, struct slo_classes *classes,
                       struct str *mistakes)
{
    struct parse parse = {.mistakes = mistakes};
    static const char joints[] = {',', SLO_ROWS_JOINT, 0};
    size_t before = mistakes->length;
    for (const char *at = rows; *rows; at++) {
        const char *end = at + strcspn(at, joints), *equals = memchr(at, '=', (size_t)(end - at));
        struct word word = {.has_value = equals != NULL};
        take(word.name, at, equals ? equals : end);
        if (equals)
            take(word.value, equals + 1, end);
        read_word(&parse, &word);
        at = end;
        if (!*at || *at == SLO_ROWS_JOINT)
            end_row(&parse);
        if (!*at)
            break;
    }
    if (parse.rows > SLO_MAX_CLASSES)
        complain(&parse, "slo_too_many", "%u classes: at most %d", parse.rows, SLO_MAX_CLASSES);
    find_standard(&parse, standard);
    if (mistakes->length > before || mistakes->truncated)
        return false;
    *classes = parse.classes;
    return true;
}

uint32_t slo_find(const struct slo_classes *classes, struct text name)
{
    for (uint32_t i = 0; i < classes->count; i++)
        if (strlen(classes->items[i].name) == name.length && name.length &&
            !memcmp(classes->items[i].name, name.bytes, name.length))
            return i;
    return SLO_NONE;
}

uint32_t slo_choose(const struct slo_classes *classes, const char *name)
{
    return name && *name ? slo_find(classes, text_from(name)) : classes->standard;
}

void slo_add_names(const struct slo_classes *classes, struct str *out)
{
    for (uint32_t i = 0; i < classes->count; i++)
        str_addf(out, "%s%s", i ? ", " : "", classes->items[i].name);
}

void slo_add_time(uint64_t us, struct str *out)
{
    static const struct {
        uint64_t us;
        const char *name;
    } units[] = {{3600000000, "h"}, {60000000, "min"}, {1000000, "s"}, {1000, "ms"}, {1, "us"}};
    size_t unit = 0;
    while (us % units[unit].us || (!us && units[unit].us > 1))
        unit++;
    str_addf(out, "%" PRIu64 " %s", us / units[unit].us, units[unit].name);
}

enum status slo_loosen(struct slo_objective *objective, const struct slo_objective *asked,
                       struct error *err)
{
    struct slo_objective loosened = *objective;
    for (size_t i = 0; i < SLO_FAILED; i++) {
        uint64_t *us = (uint64_t *)((char *)&loosened + places[i]);
        uint64_t wanted = *(const uint64_t *)((const char *)asked + places[i]);
        if (!wanted)
            continue;
        if (!*us)
            return error_set(err, STATUS_INVALID,
                             "%s: the request's class has no such objective, and a request may "
                             "only loosen its class's",
                             slo_kind_names[i]);
        if (wanted > SLO_MAX_US)
            return error_set(err, STATUS_LIMIT, "%s of a request must be at most 24 h",
                             slo_kind_names[i]);
        if (wanted < *us)
            return error_set(
                err, STATUS_INVALID,
                "%s of %.12g ms is tighter than the class's, %.12g ms: a request may only "
                "loosen its class's objectives",
                slo_kind_names[i], (double)wanted / 1e3, (double)*us / 1e3);
        *us = wanted;
    }
    *objective = loosened;
    return STATUS_OK;
}

unsigned slo_missed(const struct slo_objective *objective, const struct slo_outcome *outcome)
{
    uint64_t after_first_us =
        outcome->e2e_us > outcome->ttft_us ? outcome->e2e_us - outcome->ttft_us : 0;
    uint64_t gaps = outcome->answer_tokens > 1 ? outcome->answer_tokens - 1 : 0;
    const uint64_t took_us[SLO_FAILED] = {[SLO_TTFT] = outcome->ttft_us,
                                          [SLO_TPOT] = gaps ? (after_first_us + gaps - 1) / gaps
                                                            : 0, /* rounded up */
                                          [SLO_ITL] = gaps ? outcome->longest_gap_us : 0,
                                          [SLO_E2E] = outcome->e2e_us};
    const uint64_t most_us[SLO_FAILED] = {[SLO_TTFT] = objective->ttft_us,
                                          [SLO_TPOT] = objective->tpot_us,
                                          [SLO_ITL] = objective->itl_us,
                                          [SLO_E2E] = objective->e2e_us};
    unsigned missed = 0;
    if (!outcome->ok)
        return 1u << SLO_FAILED;
    for (int kind = 0; kind < SLO_FAILED; kind++)
        missed |= (unsigned)(most_us[kind] && took_us[kind] > most_us[kind]) << kind;
    return missed;
}

bool slo_attained(const struct slo_objective *objective, const struct slo_outcome *outcome)
{
    return !slo_missed(objective, outcome);
}

void slo_add_missed(unsigned missed, struct str *out)
{
    bool first = true;
    for (int kind = 0; kind < SLO_KINDS; kind++) {
        if (!(missed >> kind & 1))
            continue;
        str_addf(out, "%s%s", first ? "" : ",", slo_kind_names[kind]);
        first = false;
    }
}

const char *slo_verdict_name(struct slo_verdict verdict)
{
    return !verdict.counts ? "uncounted" : verdict.missed ? "missed" : "attained";
}
