#include "common/language/text/regex.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/language/text/regex_syntax.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define PATTERN_LIMIT_BYTES 8192
/* Beyond the 32 KiB of the thread's own stack, which a search begins with: few searches need more,
 * and a mapping each would cost more than they do. */
#define JIT_STACK_START_BYTES (64 * 1024)
#define JIT_STACK_LIMIT_BYTES (1024 * 1024)
/* Backtracking steps of one search. The published patterns need a few steps a character. */
#define MATCH_LIMIT    10000000
#define HEAP_LIMIT_KIB (64 * 1024)
#define COMPILE_OPTIONS                                                                            \
    (PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE)

struct regex {
    pcre2_code *code;
    bool jit;
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL: not needed yet */
};

static enum status compile(const struct str *pattern, struct regex *regex, struct error *err)
{
    int code;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    ASSERT(context);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->length, COMPILE_OPTIONS, &code,
                                &offset, context);
    pcre2_compile_context_free(context);
    if (!regex->code) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return error_set(err, STATUS_UNSUPPORTED, "the pattern %.200s can't be used: %s",
                         pattern->data, reason);
    }
    /* Where there is no JIT for this machine the interpreter does it, at a quarter of the speed. */
    regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    return STATUS_OK;
}

enum status regex_create(const char *pattern, size_t length, struct regex **regex,
                         struct error *err)
{
    if (length > PATTERN_LIMIT_BYTES)
        return error_set(err, STATUS_LIMIT, "a pattern of %zu bytes is over the limit of %d",
                         length, PATTERN_LIMIT_BYTES);
    struct str translated;
    struct regex made = {0};
    str_init(&translated, 16 * PATTERN_LIMIT_BYTES);
    enum status status = regex_syntax_translate(pattern, length, &translated, err);
    if (status == STATUS_OK)
        status = compile(&translated, &made, err);
    str_deinit(&translated);
    if (status != STATUS_OK)
        return status;
    *regex = malloc(sizeof **regex);
    ASSERT(*regex);
    **regex = made;
    return STATUS_OK;
}

void regex_destroy(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

struct regex_scratch *regex_scratch_create(void)
{
    struct regex_scratch *scratch = malloc(sizeof *scratch);
    ASSERT(scratch);
    scratch->data = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    ASSERT(scratch->data && scratch->context);
    pcre2_set_match_limit(scratch->context, MATCH_LIMIT);
    pcre2_set_heap_limit(scratch->context, HEAP_LIMIT_KIB);
    scratch->stack = NULL;
    return scratch;
}

void regex_scratch_destroy(struct regex_scratch *scratch)
{
    pcre2_jit_stack_free(scratch->stack);
    pcre2_match_context_free(scratch->context);
    pcre2_match_data_free(scratch->data);
    free(scratch);
}

/* Without NO_UTF_CHECK each search would validate the whole rest of the text: O(n^2) in all. The
 * JIT's own entry leaves out what pcre2_match checks first, which costs as much as finding a short
 * word. */
static int match_at(const struct regex *regex, struct regex_scratch *scratch, const char *text,
                    size_t length, size_t from)
{
    return regex->jit ? pcre2_jit_match(regex->code, (PCRE2_SPTR)text, length, from, 0,
                                        scratch->data, scratch->context)
                      : pcre2_match(regex->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK,
                                    scratch->data, scratch->context);
}

/* False: it has one already, or there is none to be had. */
static bool take_stack(struct regex_scratch *scratch)
{
    if (scratch->stack)
        return false;
    scratch->stack = pcre2_jit_stack_create(JIT_STACK_START_BYTES, JIT_STACK_LIMIT_BYTES, NULL);
    if (!scratch->stack)
        return false;
    pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    return true;
}

enum status regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text,
                       size_t length, size_t from, struct regex_match *match, struct error *err)
{
    int code = match_at(regex, scratch, text, length, from);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT && take_stack(scratch))
        code = match_at(regex, scratch, text, length, from);
    *match = (struct regex_match){.start = length, .end = length};
    if (code == PCRE2_ERROR_NOMATCH)
        return STATUS_OK;
    if (code < 0) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return error_set(err, STATUS_LIMIT, "splitting the text failed near byte %zu: %s", from,
                         reason);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch->data);
    /* \K inside a lookahead could set the start behind the end. */
    *match = (struct regex_match){true, ends[0] < ends[1] ? ends[0] : ends[1], ends[1]};
    return STATUS_OK;
}
