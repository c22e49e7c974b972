#include "common/base/config/config_parts.h"

#include "common/base/assert.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

static const struct str_unit byte_units[] = {{"", 1},           {"B", 1},
                                             {"KiB", 1u << 10}, {"MiB", 1u << 20},
                                             {"GiB", 1u << 30}, {"TiB", (uint64_t)1 << 40}};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- whole numbers, sizes and durations --- */

static bool parse_whole(enum config_type type, const char *text, uint64_t *value)
{
    switch (type) {
    case CONFIG_BYTES: return str_to_units(text, byte_units, COUNT(byte_units), value);
    case CONFIG_DURATION: return str_to_duration_us(text, value);
    default: return str_to_u64(text, 0, UINT64_MAX, value);
    }
}

static uint64_t whole_bound(const struct config_setting *row, const char *text, uint64_t otherwise)
{
    uint64_t bound = otherwise;
    bool parsed = !text || parse_whole(row->type, text, &bound);
    ASSERT(parsed);
    return bound;
}

static const char *example_of(enum config_type type)
{
    switch (type) {
    case CONFIG_BYTES: return "a whole number of bytes, KiB, MiB or GiB (64MiB)";
    case CONFIG_DURATION: return "a whole number with a unit, us, ms, s, m or h (500ms)";
    default: return "a whole number";
    }
}

static bool set_whole(const struct config_setting *row, void *field, const char *text,
                      struct error *why)
{
    uint64_t value, top = row->size == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX;
    bool parsed = parse_whole(row->type, text, &value);
    const char *digits = text + (*text == '-');
    bool beyond = !parsed && row->type != CONFIG_DURATION && *digits &&
                  !digits[strspn(digits, "0123456789")]; /* over 64 bits, or below 0 */
    if (!parsed && !beyond) {
        error_set(why, STATUS_INVALID, "must be %s", example_of(row->type));
        return false;
    }
    if (beyond || value < whole_bound(row, row->min, 0) ||
        value > whole_bound(row, row->max, top)) {
        const char *min = row->min ? row->min : "0";
        if (row->max)
            error_set(why, STATUS_INVALID, "must be in %s .. %s", min, row->max);
        else if (*text != '-' && (beyond || value > top))
            error_set(why, STATUS_INVALID, "must be at most %" PRIu64, top);
        else
            error_set(why, STATUS_INVALID, "must be at least %s", min);
        return false;
    }
    if (row->size == sizeof(uint32_t))
        *(uint32_t *)field = (uint32_t)value;
    else
        *(uint64_t *)field = value;
    return true;
}

static void format_whole(const struct config_setting *row, const void *field, struct str *out)
{
    uint64_t value =
        row->size == sizeof(uint32_t) ? *(const uint32_t *)field : *(const uint64_t *)field;
    const struct str_unit *units = row->type == CONFIG_BYTES ? byte_units + 1 : str_time_units;
    size_t best = row->type == CONFIG_BYTES ? COUNT(byte_units) - 1 : STR_TIME_UNITS;
    if (row->type == CONFIG_U64 || value == 0) {
        str_addf(out, "%" PRIu64, value);
        return;
    }
    do
        best--;
    while (value % units[best].factor);
    str_addf(out, "%" PRIu64 "%s", value / units[best].factor, units[best].name);
}

/* --- the other types --- */

static double double_bound(const char *text, double otherwise)
{
    double bound = otherwise;
    bool parsed = !text || str_to_double(text, -DBL_MAX, DBL_MAX, &bound);
    ASSERT(parsed);
    return bound;
}

static bool set_double(const struct config_setting *row, void *field, const char *text,
                       struct error *why)
{
    double value;
    double most = row->size == sizeof(float) ? FLT_MAX : DBL_MAX;
    double low = double_bound(row->min, -most), high = double_bound(row->max, most);
    if (!str_to_double(text, low, high, &value)) {
        if (row->min || row->max)
            error_set(why, STATUS_INVALID, "must be a number in %s .. %s",
                      row->min ? row->min : "-inf", row->max ? row->max : "inf");
        else if (str_to_double(text, -DBL_MAX, DBL_MAX, &value))
            error_set(why, STATUS_INVALID, "must be no more than %.2g", most);
        else
            error_set(why, STATUS_INVALID, "must be a number");
        return false;
    }
    if (row->size == sizeof(float))
        *(float *)field = (float)value;
    else
        *(double *)field = value;
    return true;
}

static bool set_bool(void *field, const char *text, struct error *why)
{
    bool yes = !strcmp(text, "true");
    if (!yes && strcmp(text, "false")) {
        error_set(why, STATUS_INVALID, "must be true or false");
        return false;
    }
    *(bool *)field = yes;
    return true;
}

static bool set_enum(const struct config_setting *row, void *field, const char *text,
                     struct error *why)
{
    struct str names;
    str_init(&names, 256);
    for (int i = 0; row->choices[i]; i++) {
        if (!strcmp(text, row->choices[i])) {
            memcpy(field, &i, sizeof i);
            str_deinit(&names);
            return true;
        }
        str_addf(&names, "%s%s", i ? ", " : "", row->choices[i]);
    }
    error_set(why, STATUS_INVALID, "must be one of %s", names.data);
    str_deinit(&names);
    return false;
}

static bool set_string(const struct config_setting *row, void *field, const char *text,
                       struct error *why)
{
    if (row->required && !*text)
        error_set(why, STATUS_INVALID, "must not be empty");
    else if (!str_copy(field, row->size, text))
        error_set(why, STATUS_INVALID, "is longer than %zu bytes", row->size - 1);
    else
        return true;
    return false;
}

static bool add_item(const struct config_setting *row, void *field, const char *text,
                     struct error *why)
{
    struct config_list *list = field;
    uint64_t most = whole_bound(row, row->max, CONFIG_MAX_LIST);
    if (list->count == most) {
        error_set(why, STATUS_INVALID, "is given more than %" PRIu64 " times", most);
        return false;
    }
    list->items[list->count++] = text;
    return true;
}

bool config_value_set(const struct config_setting *row, void *settings, const char *text,
                      struct error *why)
{
    void *field = (char *)settings + row->offset;
    switch (row->type) {
    case CONFIG_U64:
    case CONFIG_BYTES:
    case CONFIG_DURATION: return set_whole(row, field, text, why);
    case CONFIG_DOUBLE: return set_double(row, field, text, why);
    case CONFIG_BOOL: return set_bool(field, text, why);
    case CONFIG_ENUM: return set_enum(row, field, text, why);
    case CONFIG_STRING: return set_string(row, field, text, why);
    case CONFIG_LIST: return add_item(row, field, text, why);
    }
    return false;
}

bool config_value_check(const struct config_setting *row, const char *text, struct error *why)
{
    _Alignas(max_align_t) char scratch[4096];
    struct config_setting alone = *row;
    ASSERT(row->type != CONFIG_LIST && row->size <= sizeof scratch);
    alone.offset = 0;
    return config_value_set(&alone, scratch, text, why);
}

bool config_value_add(const struct config_setting *row, void *settings, const char *text,
                      struct error *why)
{
    char *field = (char *)settings + row->offset;
    size_t used = strlen(field);
    if (!used || !*text)
        return set_string(row, field, text, why);
    if (used + 1 + strlen(text) < row->size) {
        field[used] = row->repeats;
        strcpy(field + used + 1, text);
        return true;
    }
    error_set(why, STATUS_INVALID, "is longer than %zu bytes together", row->size - 1);
    return false;
}

void config_value_format(const struct config_setting *row, const void *settings, struct str *out)
{
    const void *field = (const char *)settings + row->offset;
    switch (row->type) {
    case CONFIG_U64:
    case CONFIG_BYTES:
    case CONFIG_DURATION: format_whole(row, field, out); break;
    case CONFIG_DOUBLE:
        str_addf(out, "%.9g",
                 row->size == sizeof(float) ? (double)*(const float *)field
                                            : *(const double *)field);
        break;
    case CONFIG_BOOL: str_add(out, *(const bool *)field ? "true" : "false"); break;
    case CONFIG_ENUM: str_add(out, row->choices[*(const int *)field]); break;
    case CONFIG_STRING: str_add(out, field); break;
    case CONFIG_LIST: {
        const struct config_list *list = field;
        for (size_t i = 0; i < list->count; i++)
            str_addf(out, "%s%s", i ? "," : "", list->items[i]);
        break;
    }
    }
}

static size_t widest_field(enum config_type type)
{
    switch (type) {
    case CONFIG_BOOL: return sizeof(bool);
    case CONFIG_ENUM: return sizeof(int);
    case CONFIG_LIST: return sizeof(struct config_list);
    case CONFIG_STRING: return 1u << 16;
    default: return sizeof(uint64_t);
    }
}

void config_value_check_row(const struct config_setting *row)
{
    bool narrow =
        row->size == sizeof(uint32_t) && (row->type == CONFIG_U64 || row->type == CONFIG_DOUBLE);
    ASSERT(row->name && row->help);
    ASSERT(narrow || row->size == widest_field(row->type) ||
           (row->type == CONFIG_STRING && row->size <= widest_field(row->type)));
    ASSERT(row->type != CONFIG_ENUM || row->choices);
    ASSERT(row->type != CONFIG_LIST || !row->default_text);
    ASSERT(row->type == CONFIG_STRING || (!row->repeats && !row->taker));
    ASSERT(!row->taker || row->taker(row->name));
    ASSERT(row->type != CONFIG_LIST ||
           whole_bound(row, row->max, CONFIG_MAX_LIST) <= CONFIG_MAX_LIST);
}
