/* The functions that every template has. */
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <stdio.h>
#include <string.h>

/* --- strftime --- */

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int day_of_year(const struct template_time *time) /* from 1 */
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    return before[time->month - 1] + time->day + (time->month > 2 && is_leap(time->year));
}

static int day_of_week(const struct template_time *time) /* 0: Sunday */
{
    int year = time->year - 1;
    return (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year(time)) % 7;
}

/* ISO 8601: weeks start on Monday, and the first one holds January 4th. */
static void iso_week(const struct template_time *time, int *year, int *week)
{
    int weekday = (day_of_week(time) + 6) % 7; /* 0: Monday */
    int thursday = day_of_year(time) - weekday + 3;
    *year = time->year;
    if (thursday < 1)
        thursday += 365 + is_leap(--*year);
    else if (thursday > 365 + is_leap(*year))
        thursday -= 365 + is_leap((*year)++);
    *week = (thursday - 1) / 7 + 1;
}

struct number {
    int value, width;
    char pad;
};

static bool number_of(char directive, const struct template_time *time, struct number *out)
{
    int hour12 = time->hour % 12 ? time->hour % 12 : 12, weekday = day_of_week(time);
    int yearday = day_of_year(time), iso_year, week;
    iso_week(time, &iso_year, &week);
    const struct {
        char directive;
        struct number number;
    } numbers[] = {
        {'d', {time->day, 2, '0'}},
        {'e', {time->day, 2, ' '}},
        {'m', {time->month, 2, '0'}},
        {'Y', {time->year, 1, '0'}},
        {'y', {time->year % 100, 2, '0'}},
        {'C', {time->year / 100, 2, '0'}},
        {'G', {iso_year, 1, '0'}},
        {'g', {iso_year % 100, 2, '0'}},
        {'V', {week, 2, '0'}},
        {'H', {time->hour, 2, '0'}},
        {'k', {time->hour, 2, ' '}},
        {'I', {hour12, 2, '0'}},
        {'l', {hour12, 2, ' '}},
        {'M', {time->minute, 2, '0'}},
        {'S', {time->second, 2, '0'}},
        {'f', {time->microsecond, 6, '0'}},
        {'j', {yearday, 3, '0'}},
        {'w', {weekday, 1, '0'}},
        {'u', {weekday ? weekday : 7, 1, '0'}},
        {'U', {(yearday + 6 - weekday) / 7, 2, '0'}},
        {'W', {(yearday + 6 - (weekday + 6) % 7) / 7, 2, '0'}},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].directive == directive) {
            *out = numbers[i].number;
            return true;
        }
    }
    return false;
}

/* Returns the longer form of a directive; NULL: none. */
static const char *expansion(char directive)
{
    switch (directive) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'T':
    case 'X': return "%H:%M:%S";
    case 'n': return "\n";
    case 't': return "\t";
    case '%': return "%";
    case 'z':
    case 'Z': return "";
    default: return NULL;
    }
}

static bool add_word(struct text_builder *out, char directive, char flag,
                     const struct template_time *time)
{
    char word[16];
    bool lower = false;
    switch (directive) {
    case 'a': snprintf(word, sizeof word, "%.3s", days[day_of_week(time)]); break;
    case 'A': snprintf(word, sizeof word, "%s", days[day_of_week(time)]); break;
    case 'b':
    case 'h': snprintf(word, sizeof word, "%.3s", months[time->month - 1]); break;
    case 'B': snprintf(word, sizeof word, "%s", months[time->month - 1]); break;
    case 'P': lower = true; __attribute__((fallthrough));
    case 'p': snprintf(word, sizeof word, "%s", time->hour < 12 ? "AM" : "PM"); break;
    default: return false;
    }
    for (char *c = word; *c; c++) {
        if (flag == '^' && *c >= 'a' && *c <= 'z')
            *c = (char)(*c - 32);
        if (lower)
            *c = (char)(*c | 32);
    }
    text_builder_literal(out, word);
    return true;
}

static void add_number(struct text_builder *out, struct number number, char flag)
{
    char text[32];
    char pad = flag == '_' ? ' ' : flag == '0' ? '0' : number.pad;
    int width = flag == '-' ? 1 : number.width;
    if (pad == ' ')
        snprintf(text, sizeof text, "%*d", width, number.value);
    else
        snprintf(text, sizeof text, "%0*d", width, number.value);
    text_builder_literal(out, text);
}

static void date_format(struct text_builder *out, const char *format, size_t length,
                        const struct template_time *time);

static bool add_directive(struct text_builder *out, char directive, char flag,
                          const struct template_time *time)
{
    struct number number;
    const char *longer = expansion(directive);
    if (number_of(directive, time, &number)) {
        add_number(out, number, flag);
        return true;
    }
    if (add_word(out, directive, flag, time))
        return true;
    if (!longer)
        return false;
    if (*longer == '%' && longer[1])
        date_format(out, longer, strlen(longer),
                    time); /* has only numbers and words: no deeper recursion */
    else
        text_builder_literal(out, longer);
    return true;
}

/* Formats as strftime in the C locale, for a time without a zone, as Python's datetime.strftime.
 * "%-d", "%_d", "%0d" and "%^a" work as in glibc. Text that isn't a directive stays. */
static void date_format(struct text_builder *out, const char *format, size_t length,
                        const struct template_time *time)
{
    for (size_t at = 0; at < length;) {
        size_t next = at + 1;
        if (format[at] == '%' && next < length) {
            bool flagged = format[next] && strchr("-_0^", format[next]) && next + 1 < length;
            char flag = flagged ? format[next++] : 0;
            if (add_directive(out, format[next], flag, time)) {
                at = next + 1;
                continue;
            }
        }
        text_builder_add(out, format + at, 1, false);
        at++;
    }
}

/* --- functions --- */

struct template_function {
    const char *name;
    struct value (*apply)(struct run *run, const struct macro_call *call);
};

/* dict(mapping, a=1), and namespace with the same arguments. */
static struct value_dict *dict_from(struct run *run, const struct macro_call *call)
{
    struct value_dict *made = run_dict(run, call->keyword_count);
    if (call->count > 1 || (call->count == 1 && call->arguments[0].kind != VALUE_DICT)) {
        run_fail(run, "dict expected one mapping and keywords");
        return NULL;
    }
    const struct value_dict *base = call->count ? call->arguments[0].dict : NULL;
    for (size_t i = 0; base && i < base->count && !run_failed(run); i++)
        run_dict_put(run, made, base->entries[i].key, base->entries[i].value);
    for (size_t i = 0; i < call->keyword_count && !run_failed(run); i++)
        run_dict_put(run, made,
                     value_string(call->keywords[i].name, call->keywords[i].length, false),
                     call->keywords[i].value);
    return run_failed(run) ? NULL : made;
}

static struct value make_dict(struct run *run, const struct macro_call *call)
{
    struct value_dict *made = dict_from(run, call);
    return made ? value_dict(made) : value_none();
}

static struct value make_namespace(struct run *run, const struct macro_call *call)
{
    struct value value = make_dict(run, call);
    if (value.kind == VALUE_DICT)
        value.kind = VALUE_NAMESPACE;
    return value;
}

static bool range_bounds(struct run *run, const struct macro_call *call, int64_t bounds[3])
{
    if (call->count < 1 || call->count > 3 || call->keyword_count) {
        run_fail(run, "range expected 1 to 3 arguments, got %zu", call->count);
        return false;
    }
    for (size_t i = 0; i < call->count; i++) {
        struct value value = call->arguments[i];
        if (value.kind == VALUE_UNDEFINED) {
            run_fail_undefined(run, value);
        } else if (value.kind != VALUE_INT && value.kind != VALUE_BOOL) {
            run_fail(run, "'%s' object cannot be interpreted as an integer",
                     value_type_name(value));
        } else {
            bounds[call->count == 1 ? 1 : i] =
                value.kind == VALUE_BOOL ? value.boolean : value.integer;
        }
    }
    if (bounds[2] == 0)
        run_fail(run, "range() arg 3 must not be zero");
    return !run_failed(run);
}

static struct value make_range(struct run *run, const struct macro_call *call)
{
    int64_t bounds[3] = {0, 0, 1};
    if (!range_bounds(run, call, bounds))
        return value_none();
    uint64_t span = 0, stride = bounds[2] > 0 ? (uint64_t)bounds[2] : -(uint64_t)bounds[2];
    if (bounds[2] > 0 && bounds[1] > bounds[0])
        span = (uint64_t)bounds[1] - (uint64_t)bounds[0];
    if (bounds[2] < 0 && bounds[1] < bounds[0])
        span = (uint64_t)bounds[0] - (uint64_t)bounds[1];
    uint64_t count = span / stride + (span % stride != 0);
    if (count > TEMPLATE_LIMIT_RANGE)
        return run_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        TEMPLATE_LIMIT_RANGE);
    struct value_sequence *made = run_sequence(run, "range", (size_t)count);
    if (!made)
        return value_none();
    memcpy(made->range, bounds, sizeof made->range);
    for (; made->count < count; made->count++)
        made->items[made->count] =
            value_int((int64_t)((uint64_t)bounds[0] + made->count * (uint64_t)bounds[2]));
    return value_sequence(VALUE_RANGE, made);
}

static struct value raise_exception(struct run *run, const struct macro_call *call)
{
    static const char *const names[] = {"message"};
    struct value message;
    if (!call_bind(run, call, "raise_exception", names, &message, 1))
        return value_none();
    if (message.kind == VALUE_ABSENT)
        return run_fail(run, "raise_exception() missing 1 required positional argument: 'message'");
    message = python_string_of(run, message);
    if (run_failed(run))
        return value_none();
    if (message.text.length > TEMPLATE_LIMIT_MESSAGE)
        message = value_part(message, 0, TEMPLATE_LIMIT_MESSAGE);
    run->raised = true;
    return run_fail_with(run, message);
}

static struct value strftime_now(struct run *run, const struct macro_call *call)
{
    static const char *const names[] = {"format"};
    struct value format;
    if (!call_bind(run, call, "strftime_now", names, &format, 1))
        return value_none();
    if (format.kind != VALUE_STRING)
        return run_fail(run, "strftime() argument 1 must be str, not %s", value_type_name(format));
    struct text_builder builder;
    run_builder(run, &builder);
    date_format(&builder, format.text.bytes, format.text.length, &run->now);
    return run_finish(run, &builder);
}

static const struct template_function functions[] = {
    {"namespace", make_namespace},        {"range", make_range},          {"dict", make_dict},
    {"raise_exception", raise_exception}, {"strftime_now", strftime_now},
};

const struct template_function *function_find(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name))
            return &functions[i];
    return NULL;
}

struct value function_apply(struct run *run, const struct template_function *function,
                            const struct macro_call *call)
{
    return function->apply(run, call);
}
