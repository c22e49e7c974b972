/* Filters that give numbers. */
#include "common/language/template/filters.h"
#include "common/language/template/python_text.h"
#include "common/language/template/text_methods.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 400 /* of a number in a string: a longer one is none */

/* A string without white space around it and "_" between its digits, NUL-terminated; false where it
 * can't be a number. */
static bool digits_of(struct run *run, struct value string, char out[MAX_DIGITS])
{
    struct value text = text_strip(run, string, value_none(), STRIP_BOTH);
    size_t count = 0;
    if (text.text.length == 0 || text.text.length >= MAX_DIGITS)
        return false;
    for (size_t i = 0; i < text.text.length; i++) {
        char c = text.text.bytes[i];
        char before = i ? text.text.bytes[i - 1] : 0;
        char behind = i + 1 < text.text.length ? text.text.bytes[i + 1] : 0;
        bool between = before >= '0' && before <= '9' && behind >= '0' && behind <= '9';
        if (c == '_' && between)
            continue;
        if (c <= ' ' || c == '_')
            return false;
        out[count++] = c;
    }
    out[count] = 0;
    return true;
}

static bool read_integer(const char *digits, int base, int64_t *out)
{
    char *end;
    size_t from = strspn(digits, "+-");
    if (from > 1 || !digits[from])
        return false;
    bool prefixed = digits[from] == '0' && strchr("xXoObB", digits[from + 1]) && digits[from + 1];
    char letter = prefixed ? (char)(digits[from + 1] | 0x20) : 0;
    int wanted = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed && base != wanted && base != 0)
        return false;
    if (prefixed && strchr("+-", digits[from + 2]))
        return false;
    errno = 0;
    long long value = strtoll(digits + from + (prefixed ? 2 : 0), &end,
                              prefixed ? wanted
                              : base   ? base
                                       : 10);
    if (errno || *end || end == digits + from + (prefixed ? 2 : 0))
        return false;
    *out = *digits == '-' ? -value : value;
    return true;
}

/* Python's float(str): decimal, inf, nan. */
static bool read_float(const char *digits, double *out)
{
    char *end;
    const char *unsigned_digits = digits + (*digits == '+' || *digits == '-');
    if (strpbrk(digits, "xXpP(") || *unsigned_digits == '+' || *unsigned_digits == '-')
        return false;
    *out = strtod(digits, &end);
    return end != digits && !*end;
}

static bool truncated(double number, int64_t *out)
{
    if (!(number > -9.2e18 && number < 9.2e18))
        return false;
    *out = (int64_t)number;
    return true;
}

/* False where Python's int() fails in the ways that the filter catches. */
static bool as_integer(struct run *run, struct value input, int base, int64_t *out)
{
    char digits[MAX_DIGITS];
    double number;
    if (input.kind == VALUE_BOOL || input.kind == VALUE_INT) {
        *out = input.kind == VALUE_BOOL ? input.boolean : input.integer;
        return true;
    }
    if (input.kind == VALUE_FLOAT)
        return truncated(input.real, out);
    if (input.kind != VALUE_STRING || !digits_of(run, input, digits))
        return false;
    if (read_integer(digits, base, out))
        return true;
    return read_float(digits, &number) && truncated(number, out);
}

struct value filter_int(struct run *run, struct value input, const struct call *call)
{
    static const char *const names[] = {"default", "base"};
    struct value values[2];
    int64_t integer;
    if (!call_bind(run, call, "int", names, values, 2))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    int base = values[1].kind == VALUE_INT ? (int)values[1].integer : 10;
    if (base != 0 && (base < 2 || base > 36))
        return run_fail(run, "int() base must be >= 2 and <= 36, or 0");
    if (as_integer(run, input, base, &integer))
        return value_int(integer);
    return values[0].kind == VALUE_ABSENT ? value_int(0) : values[0];
}

struct value filter_float(struct run *run, struct value input, const struct call *call)
{
    static const char *const names[] = {"default"};
    struct value fallback;
    char digits[MAX_DIGITS];
    double number;
    if (!call_bind(run, call, "float", names, &fallback, 1))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    if (value_is_number(input))
        return value_float(value_as_double(input));
    if (input.kind == VALUE_STRING && digits_of(run, input, digits) && read_float(digits, &number))
        return value_float(number);
    return fallback.kind == VALUE_ABSENT ? value_float(0) : fallback;
}

struct value filter_abs(struct run *run, struct value input, const struct call *call)
{
    if (!call_bind(run, call, "abs", NULL, NULL, 0))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    if (!value_is_number(input))
        return run_fail(run, "bad operand type for abs(): '%s'", value_type_name(input));
    if (input.kind == VALUE_FLOAT)
        return value_float(fabs(input.real));
    bool negative = input.kind == VALUE_INT && input.integer < 0;
    return negate(run, input, negative);
}

/* Half to even on what the double really is, as Python's round. */
static double round_to(double number, int digits)
{
    char text[400];
    if (digits < 0) {
        double unit = pow(10, -digits);
        return nearbyint(number / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", digits, number);
    return strtod(text, NULL);
}

struct value filter_round(struct run *run, struct value input, const struct call *call)
{
    static const char *const names[] = {"precision", "method"};
    struct value values[2];
    if (!call_bind(run, call, "round", names, values, 2))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    if (!value_is_number(input))
        return run_fail(run, "type %s doesn't define __round__ method", value_type_name(input));
    int64_t wide = values[0].kind == VALUE_INT ? values[0].integer : 0;
    int digits = wide < -20 ? -20 : wide > 20 ? 20 : (int)wide;
    double number = value_as_double(input), scale = pow(10, digits);
    if (values[1].kind != VALUE_ABSENT && value_is_text(values[1], "ceil"))
        return value_float(ceil(number * scale) / scale);
    if (values[1].kind != VALUE_ABSENT && value_is_text(values[1], "floor"))
        return value_float(floor(number * scale) / scale);
    if (values[1].kind != VALUE_ABSENT && !value_is_text(values[1], "common"))
        return run_fail(run, "method must be common, ceil or floor");
    if (input.kind != VALUE_FLOAT && digits >= 0)
        return negate(run, input, false);
    if (input.kind != VALUE_FLOAT)
        return value_int((int64_t)round_to(number, digits));
    return value_float(isfinite(number) ? round_to(number, digits) : number);
}
