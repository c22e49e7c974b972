#include "common/language/template/date_format.h"

#include <stdio.h>
#include <string.h>

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

/* What a directive is short for. */
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
    case 'P':
        lower = true; /* and on */
        __attribute__((fallthrough));
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
        date_format(out, longer, strlen(longer), time); /* of numbers and words: no deeper */
    else
        text_builder_literal(out, longer);
    return true;
}

void date_format(struct text_builder *out, const char *format, size_t length,
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
