#include "common/base/assert.h"
#include "common/language/constrain/schema_compiler.h"

#include <string.h>

#define DAY "(0[1-9]|1\\d|2[0-8])"
#define DATE                                                                                       \
    "(000[1-9]|00[1-9]\\d|0[1-9]\\d{2}|[1-9]\\d{3})-"                                              \
    "((0[1-9]|1[0-2])-" DAY "|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
#define TIME   "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define HEX    "[0-9a-f]"
#define H16    "[0-9a-fA-F]{1,4}"
#define OCTET  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL  "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define PCHAR  "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define NUMBER "(0|[1-9]\\d{0,3})"

/* Formats as expressions for the whole text. Some take less than the standard does (no 29 February,
 * short labels, no quoted local parts), none takes more. */
static const struct {
    const char *name, *expression;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P(" NUMBER "W|(" NUMBER "Y(" NUMBER "M(" NUMBER "D)?)?|" NUMBER "M(" NUMBER "D)?|" NUMBER
     "D)(T(" NUMBER "H(" NUMBER "M(" NUMBER "S)?)?|" NUMBER "M(" NUMBER "S)?|" NUMBER
     "S))?|T(" NUMBER "H(" NUMBER "M(" NUMBER "S)?)?|" NUMBER "M(" NUMBER "S)?|" NUMBER "S))"},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"ipv4", "(" OCTET "\\.){3}" OCTET},
    {"ipv6", "((" H16 ":){7}" H16 "|(" H16 ":){1,7}:|(" H16 ":){1,6}:" H16 "|(" H16 ":){1,5}(:" H16
             "){1,2}|(" H16 ":){1,4}(:" H16 "){1,3}|(" H16 ":){1,3}(:" H16 "){1,4}|(" H16
             ":){1,2}(:" H16 "){1,5}|" H16 ":(:" H16 "){1,6}|:(:" H16 "){1,7}|::)"},
    {"hostname", LABEL "(\\." LABEL "){0,5}"},
    {"email", "[A-Za-z0-9_%+-]{1,20}(\\.[A-Za-z0-9_%+-]{1,20}){0,2}@" LABEL "(\\." LABEL "){1,3}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]{0,20}://[A-Za-z0-9._~-]+(:\\d{1,4})?(/" PCHAR "*)*(\\?(" PCHAR
            "|[/?])*)?(#(" PCHAR "|[/?])*)?"},
    /* OpenAPI's, which say nothing of what is valid; a password may be any text. */
    {"password", NULL},
    {"byte", NULL},
    {"binary", NULL},
    {"int32", NULL},
    {"int64", NULL},
    {"uint32", NULL},
    {"uint64", NULL},
    {"float", NULL},
    {"double", NULL},
    {"decimal", NULL},
};

const char *schema_format(const char *name, bool *known)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name)) {
            *known = true;
            return formats[i].expression;
        }
    *known = false;
    return NULL;
}

/* Any characters, counted. */
static void put_counted(struct schema_compiler *compiler, uint32_t min, uint32_t max, uint32_t from,
                        uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    for (uint32_t i = 0; i < min && !grammar->full; i++) {
        uint32_t next = grammar_add_state(grammar, from);
        characters_put_any(&compiler->characters, from, next);
        from = next;
    }
    for (uint32_t i = min; max != UINT32_MAX && i < max && !grammar->full; i++) {
        uint32_t next = grammar_add_state(grammar, from);
        characters_put_any(&compiler->characters, from, next);
        grammar_add_jump(grammar, from, to);
        from = next;
    }
    if (max == UINT32_MAX) {
        uint32_t loop = grammar_add_state(grammar, from);
        grammar_add_jump(grammar, from, loop);
        characters_put_any(&compiler->characters, loop, loop);
        from = loop;
    }
    grammar_add_jump(grammar, from, to);
}

static enum status put_matching(struct schema_compiler *compiler, const struct schema_facts *facts,
                                uint32_t max, uint32_t from, uint32_t to)
{
    struct text_automaton automaton;
    struct error why;
    enum status status = STATUS_OK;
    if (facts->min_length || max != UINT32_MAX)
        status = text_pattern_add_length(facts->pattern, facts->min_length, max, &why);
    if (status == STATUS_OK)
        status = text_automaton_build(facts->pattern, &automaton, &why);
    if (status != STATUS_OK)
        return schema_fail(compiler, facts->pattern_path, facts->pattern_keyword, status, "%s",
                           why.text);
    if (automaton.state_count)
        characters_put_automaton(&compiler->characters, true, &automaton, from, to);
    text_automaton_deinit(&automaton);
    return STATUS_OK;
}

enum status schema_put_string(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    uint32_t first = grammar_add_state(grammar, from), last = grammar_add_state(grammar, from);
    uint32_t max = facts->max_length;
    if (facts->min_length > SCHEMA_MAX_LENGTH)
        return schema_fail(compiler, facts->min_length_path, "minLength", STATUS_LIMIT,
                           "%u is over the limit of %d", facts->min_length, SCHEMA_MAX_LENGTH);
    if (max < facts->min_length)
        return STATUS_OK;
    if (max != UINT32_MAX && max > SCHEMA_MAX_LENGTH)
        max = SCHEMA_MAX_LENGTH;
    grammar_add_bytes(grammar, from, '"', '"', first);
    grammar_add_bytes(grammar, last, '"', '"', to);
    if (facts->pattern)
        return put_matching(compiler, facts, max, first, last);
    put_counted(compiler, facts->min_length, max, first, last);
    return STATUS_OK;
}
