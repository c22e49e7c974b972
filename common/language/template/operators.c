/* Arithmetic, comparison and sorting as in Python, on int64 and double. An integer beyond 64 bits
 * is a failure. */
#include "common/language/template/run.h"

#include <math.h>
#include <string.h>

static const char *sign_of(enum node_operator sign)
{
    static const char *const signs[] = {[OPERATOR_SUBTRACT] = "-", [OPERATOR_MULTIPLY] = "*",
                                        [OPERATOR_DIVIDE] = "/",   [OPERATOR_FLOOR_DIVIDE] = "//",
                                        [OPERATOR_MODULO] = "%",   [OPERATOR_POWER] = "** or pow()",
                                        [OPERATOR_EQUAL] = "==",   [OPERATOR_NOT_EQUAL] = "!=",
                                        [OPERATOR_LESS] = "<",     [OPERATOR_LESS_EQUAL] = "<=",
                                        [OPERATOR_GREATER] = ">",  [OPERATOR_GREATER_EQUAL] = ">=",
                                        [OPERATOR_IN] = "in",      [OPERATOR_NOT_IN] = "not in"};
    return signs[sign];
}

static int64_t integer_of(struct value value)
{
    return value.kind == VALUE_BOOL ? value.boolean : value.integer;
}

static struct value unsupported(struct run *run, const char *sign, struct value left,
                                struct value right)
{
    if (left.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, left);
    if (right.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, right);
    return run_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", sign,
                    value_type_name(left), value_type_name(right));
}

static struct value too_large(struct run *run)
{
    return run_limit(run, "the template computes an integer beyond 64 bits");
}

/* --- + --- */

/* Escapes a string that is joined to a safe one, as markupsafe. */
static void add_escaped(struct text_builder *builder, struct value string)
{
    static const struct {
        char c;
        const char *text;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    if (string.is_markup) {
        text_builder_string(builder, string);
        return;
    }
    for (size_t at = 0; at < string.text.length; at++) {
        const char *text = NULL;
        for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
            if (string.text.bytes[at] == escapes[i].c)
                text = escapes[i].text;
        text_builder_add(builder, text ? text : string.text.bytes + at, text ? strlen(text) : 1,
                         text_is_input(string, at));
    }
}

static struct value add_strings(struct run *run, struct value left, struct value right)
{
    struct text_builder builder;
    bool markup = left.is_markup || right.is_markup;
    run_builder(run, &builder);
    if (markup) {
        add_escaped(&builder, left);
        add_escaped(&builder, right);
    } else {
        text_builder_string(&builder, left);
        text_builder_string(&builder, right);
    }
    struct value sum = run_finish(run, &builder);
    sum.is_markup = markup;
    return sum;
}

static struct value add_sequences(struct run *run, struct value left, struct value right)
{
    size_t a = left.sequence->count, b = right.sequence->count;
    struct value_sequence *made = run_sequence(run, left.sequence->type, a + b);
    if (!made)
        return value_none();
    if (a)
        memcpy(made->items, left.sequence->items, a * sizeof *made->items);
    if (b)
        memcpy(made->items + a, right.sequence->items, b * sizeof *made->items);
    made->count = a + b;
    return value_sequence(left.kind, made);
}

struct value add(struct run *run, struct value left, struct value right)
{
    int64_t sum;
    if (value_is_number(left) && value_is_number(right)) {
        if (left.kind == VALUE_FLOAT || right.kind == VALUE_FLOAT)
            return value_float(value_as_double(left) + value_as_double(right));
        return __builtin_add_overflow(integer_of(left), integer_of(right), &sum) ? too_large(run)
                                                                                 : value_int(sum);
    }
    if (left.kind == right.kind && left.kind == VALUE_STRING)
        return add_strings(run, left, right);
    if (left.kind == right.kind && (left.kind == VALUE_LIST || left.kind == VALUE_TUPLE))
        return add_sequences(run, left, right);
    bool sequence =
        left.kind == VALUE_STRING || left.kind == VALUE_LIST || left.kind == VALUE_TUPLE;
    if (!sequence || left.is_markup || right.kind == VALUE_UNDEFINED)
        return unsupported(run, "+", left, right);
    const char *type = value_type_name(left);
    return run_fail(run, "can only concatenate %s (not \"%s\") to %s", type, value_type_name(right),
                    type);
}

/* --- - * / // % ** --- */

/* Spends a step for each copy. */
static struct value repeat_string(struct run *run, struct value string, int64_t times)
{
    struct text_builder builder;
    size_t copies = times > 0 && string.text.length ? (size_t)times : 0;
    run_builder(run, &builder);
    if (copies && builder.limit / string.text.length < copies)
        return run_limit(run, "the template takes too much memory");
    run_spend(run, copies);
    for (; copies > 0 && !builder.full && !run_failed(run); copies--)
        text_builder_string(&builder, string);
    return run_finish(run, &builder);
}

static struct value repeat_sequence(struct run *run, struct value value, int64_t times)
{
    size_t count = value.sequence->count, all;
    if (times < 0)
        times = 0;
    if (__builtin_mul_overflow(count, (size_t)times, &all))
        return run_limit(run, "the template takes too much memory");
    struct value_sequence *made = run_sequence(run, value.sequence->type, all);
    if (!made)
        return value_none();
    for (; made->count < all; made->count++)
        made->items[made->count] = value.sequence->items[made->count % count];
    return value_sequence(value.kind, made);
}

/* Computes "ab" * 3. Returns ABSENT for other operands. */
static struct value repeat(struct run *run, struct value left, struct value right)
{
    if (left.kind == VALUE_INT || left.kind == VALUE_BOOL) {
        struct value number = left;
        left = right;
        right = number;
    }
    if (right.kind == VALUE_INT || right.kind == VALUE_BOOL) {
        if (left.kind == VALUE_STRING)
            return repeat_string(run, left, integer_of(right));
        if (left.kind == VALUE_LIST || left.kind == VALUE_TUPLE)
            return repeat_sequence(run, left, integer_of(right));
    }
    return (struct value){.kind = VALUE_ABSENT};
}

static bool repeats(struct value value)
{
    return value.kind == VALUE_STRING || value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

static struct value float_arithmetic(struct run *run, enum node_operator sign, double a, double b)
{
    double rest;
    switch (sign) {
    case OPERATOR_SUBTRACT: return value_float(a - b);
    case OPERATOR_MULTIPLY: return value_float(a * b);
    case OPERATOR_DIVIDE:
        return b != 0 ? value_float(a / b) : run_fail(run, "float division by zero");
    case OPERATOR_FLOOR_DIVIDE:
        return b != 0 ? value_float(floor(a / b)) : run_fail(run, "float floor division by zero");
    case OPERATOR_MODULO:
        if (b == 0)
            return run_fail(run, "float modulo");
        rest = fmod(a, b);
        return value_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    default:
        return a == 0 && b < 0 ? run_fail(run, "0.0 cannot be raised to a negative power")
                               : value_float(pow(a, b));
    }
}

static struct value integer_power(struct run *run, int64_t base, int64_t exponent)
{
    int64_t power = 1;
    if (base == 1 || (base == 0 && exponent > 0))
        return value_int(base);
    if (base == -1)
        return value_int(exponent % 2 ? -1 : 1);
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(power, base, &power))
            return too_large(run);
    return value_int(power);
}

static struct value integer_arithmetic(struct run *run, enum node_operator sign, int64_t a,
                                       int64_t b)
{
    int64_t result;
    switch (sign) {
    case OPERATOR_SUBTRACT:
        return __builtin_sub_overflow(a, b, &result) ? too_large(run) : value_int(result);
    case OPERATOR_MULTIPLY:
        return __builtin_mul_overflow(a, b, &result) ? too_large(run) : value_int(result);
    case OPERATOR_DIVIDE:
        return b ? value_float((double)a / (double)b) : run_fail(run, "division by zero");
    case OPERATOR_POWER:
        return b < 0 ? float_arithmetic(run, sign, (double)a, (double)b) : integer_power(run, a, b);
    default: break;
    }
    if (b == 0)
        return run_fail(run, sign == OPERATOR_MODULO ? "integer modulo by zero"
                                                     : "integer division or modulo by zero");
    if (b == -1) /* INT64_MIN / -1 */
        return sign == OPERATOR_MODULO ? value_int(0)
                                       : integer_arithmetic(run, OPERATOR_SUBTRACT, 0, a);
    int64_t quotient = a / b, rest = a % b;
    bool apart = rest != 0 && (rest < 0) != (b < 0); /* Python rounds down */
    return sign == OPERATOR_MODULO ? value_int(apart ? rest + b : rest)
                                   : value_int(apart ? quotient - 1 : quotient);
}

struct value arithmetic(struct run *run, enum node_operator sign, struct value left,
                        struct value right)
{
    if (sign == OPERATOR_MULTIPLY) {
        struct value repeated = repeat(run, left, right);
        if (repeated.kind != VALUE_ABSENT)
            return repeated;
        bool undefined = left.kind == VALUE_UNDEFINED || right.kind == VALUE_UNDEFINED;
        if (!undefined && (repeats(left) || repeats(right)))
            return run_fail(run, "can't multiply sequence by non-int of type '%s'",
                            value_type_name(repeats(left) ? right : left));
    }
    if (sign == OPERATOR_MODULO && left.kind == VALUE_STRING)
        return run_fail(run, "formatting a string with %% is not supported");
    if (!value_is_number(left) || !value_is_number(right))
        return unsupported(run, sign_of(sign), left, right);
    if (left.kind == VALUE_FLOAT || right.kind == VALUE_FLOAT)
        return float_arithmetic(run, sign, value_as_double(left), value_as_double(right));
    return integer_arithmetic(run, sign, integer_of(left), integer_of(right));
}

struct value negate(struct run *run, struct value value, bool negative)
{
    if (value.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, value);
    if (!value_is_number(value))
        return run_fail(run, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                        value_type_name(value));
    if (value.kind == VALUE_FLOAT)
        return value_float(negative ? -value.real : value.real);
    int64_t integer = integer_of(value);
    return negative ? integer_arithmetic(run, OPERATOR_SUBTRACT, 0, integer) : value_int(integer);
}

/* --- comparison --- */

static int order_strings(struct run *run, struct value a, struct value b)
{
    size_t shorter = a.text.length < b.text.length ? a.text.length : b.text.length;
    run_spend(run, shorter / 64);
    int sign = shorter ? memcmp(a.text.bytes, b.text.bytes, shorter) : 0;
    return sign ? sign : (a.text.length > b.text.length) - (a.text.length < b.text.length);
}

static int order_sequences(struct run *run, enum node_operator sign, const struct value_sequence *a,
                           const struct value_sequence *b)
{
    for (size_t i = 0; i < a->count && i < b->count && !run_failed(run); i++)
        if (!run_equal(run, a->items[i], b->items[i]))
            return order(run, sign, a->items[i], b->items[i]);
    return (a->count > b->count) - (a->count < b->count);
}

int order(struct run *run, enum node_operator sign, struct value left, struct value right)
{
    if (run->depth == TEMPLATE_LIMIT_DEPTH)
        run_limit(run, "the template nests too deeply");
    run_spend(run, 1);
    if (run_failed(run))
        return 0;
    if (value_is_number(left) && value_is_number(right)) {
        if (left.kind != VALUE_FLOAT && right.kind != VALUE_FLOAT)
            return (integer_of(left) > integer_of(right)) - (integer_of(left) < integer_of(right));
        double a = value_as_double(left), b = value_as_double(right);
        return (a > b) - (a < b);
    }
    if (left.kind == right.kind && left.kind == VALUE_STRING)
        return order_strings(run, left, right);
    if (left.kind == right.kind && (left.kind == VALUE_LIST || left.kind == VALUE_TUPLE)) {
        run->depth++;
        int result = order_sequences(run, sign, left.sequence, right.sequence);
        run->depth--;
        return result;
    }
    if (left.kind == VALUE_UNDEFINED || right.kind == VALUE_UNDEFINED)
        run_fail_undefined(run, left.kind == VALUE_UNDEFINED ? left : right);
    else
        run_fail(run, "'%s' not supported between instances of '%s' and '%s'", sign_of(sign),
                 value_type_name(left), value_type_name(right));
    return 0;
}

static bool contains(struct run *run, struct value container, struct value item)
{
    if (container.kind == VALUE_STRING) {
        if (item.kind != VALUE_STRING)
            run_fail(run, "'in <string>' requires string as left operand, not %s",
                     value_type_name(item));
        run_spend(run, container.text.length / 64);
        return item.kind == VALUE_STRING &&
               (item.text.length == 0 || memmem(container.text.bytes, container.text.length,
                                                item.text.bytes, item.text.length));
    }
    if (container.kind == VALUE_DICT)
        return run_dict_find(run, container.dict, item) != NULL;
    if (!value_is_sequence(container) && container.kind != VALUE_UNDEFINED) {
        run_fail(run, "argument of type '%s' is not iterable", value_type_name(container));
        return false;
    }
    struct run_items items = run_iterate(run, container);
    for (size_t i = 0; i < items.count && !run_failed(run); i++)
        if (run_equal(run, items.items[i], item))
            return true;
    return false;
}

bool compare(struct run *run, enum node_operator sign, struct value left, struct value right)
{
    switch (sign) {
    case OPERATOR_EQUAL: return run_equal(run, left, right);
    case OPERATOR_NOT_EQUAL: return !run_equal(run, left, right);
    case OPERATOR_IN: return contains(run, right, left);
    case OPERATOR_NOT_IN: return !contains(run, right, left);
    case OPERATOR_LESS: return order(run, sign, left, right) < 0;
    case OPERATOR_LESS_EQUAL: return order(run, sign, left, right) <= 0;
    case OPERATOR_GREATER: return order(run, sign, left, right) > 0;
    default: return order(run, sign, left, right) >= 0;
    }
}

/* --- sorting --- */

struct sorting {
    struct run *run;
    struct sort_item *items, *spare;
    bool reverse;
};

/* Merges the sorted [from, middle) and [middle, to). Equals keep their order, also in reverse. */
static void merge(struct sorting *sorting, size_t from, size_t middle, size_t to)
{
    size_t left = from, right = middle, out = from;
    memcpy(sorting->spare + from, sorting->items + from, (to - from) * sizeof *sorting->items);
    while (out < to) {
        bool take_right = left == middle;
        if (!take_right && right < to) {
            int sign = order(sorting->run, OPERATOR_LESS, sorting->spare[right].key,
                             sorting->spare[left].key);
            take_right = sorting->reverse ? sign > 0 : sign < 0;
        }
        sorting->items[out++] = sorting->spare[take_right ? right++ : left++];
    }
}

void sort_items(struct run *run, struct sort_item *items, size_t count, bool reverse)
{
    struct sorting sorting = {.run = run, .items = items, .reverse = reverse};
    if (count < 2 || !(sorting.spare = run_take(run, count * sizeof *items)))
        return;
    for (size_t width = 1; width < count && !run_failed(run); width *= 2)
        for (size_t from = 0; from + width < count; from += 2 * width)
            merge(&sorting, from, from + width,
                  from + 2 * width < count ? from + 2 * width : count);
}

const struct value_entry *sort_entries(struct run *run, const struct value_dict *dict)
{
    struct sort_item *items = run_take(run, dict->count * sizeof *items);
    struct value_entry *sorted = run_take(run, dict->count * sizeof *sorted);
    if (!items || !sorted)
        return NULL;
    for (size_t i = 0; i < dict->count; i++)
        items[i] = (struct sort_item){dict->entries[i].key, dict->entries[i].value};
    sort_items(run, items, dict->count, false);
    for (size_t i = 0; i < dict->count; i++)
        sorted[i] = (struct value_entry){items[i].key, items[i].value};
    return sorted;
}
