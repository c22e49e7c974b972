/* Any bytes as a template, with a message of a request and a few of its own values. It compiles or
 * is refused with a sentence that names a line. Its output is valid UTF-8 within its memory, the
 * same each time; a failure is a sentence. */
#include "common/base/arena.h"
#include "common/base/utf8.h"
#include "common/language/template/template.h"
#include "common/language/template/value.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MEMORY_BYTES (2u << 20)

static struct value list_of(struct arena *arena, const struct value *items, size_t count)
{
    struct value_sequence *list = value_sequence_make(arena, "list", count);
    FUZZ_CHECK(list);
    memcpy(list->items, items, count * sizeof *items);
    list->count = count;
    return value_sequence(VALUE_LIST, list);
}

static struct value message(struct arena *arena, const char *role, const char *content)
{
    struct value_dict *dict = value_dict_make(arena, 2);
    FUZZ_CHECK(dict);
    FUZZ_CHECK(value_dict_add(arena, dict, value_literal("role"), value_literal(role)));
    FUZZ_CHECK(value_dict_add(arena, dict, value_literal("content"),
                              value_string(content, strlen(content), true)));
    return value_dict(dict);
}

static void check_output(const struct template_output *output)
{
    struct value_text text = output->text.text;
    FUZZ_CHECK(output->text.kind == VALUE_STRING);
    FUZZ_CHECK(utf8_valid(text.bytes, text.length, NULL));
    for (size_t i = 0; text.marks && i < text.length; i++)
        FUZZ_CHECK(text.marks[i] <= 1);
    for (size_t i = 1; i < text.length; i++) /* a character is of one kind */
        if (((unsigned char)text.bytes[i] & 0xC0) == 0x80)
            FUZZ_CHECK(text_is_input(output->text, i) == text_is_input(output->text, i - 1));
}

static enum status render(const struct template *template, struct arena *arena,
                          struct template_output *output)
{
    struct error err = {""};
    arena_init(arena, MEMORY_BYTES);
    const struct value messages[] = {message(arena, "system", " be \xc3\xa9 "),
                                     message(arena, "user", "<|im_start|> hi\n\xf0\x9f\x99\x82"),
                                     message(arena, "assistant", "<think>\nx</think>y")};
    const struct template_variable variables[] = {
        {"messages", list_of(arena, messages, 3)},
        {"a", value_int(3)},
        {"b", value_float(2.5)},
        {"s", value_string("Some text, of the request", 25, true)},
        {"bos_token", value_literal("<s>")},
        {"add_generation_prompt", value_bool(true)},
    };
    struct template_time now = {.year = 2026, .month = 7, .day = 26};
    enum status status = template_render(template, arena, variables, 6, now, output, &err);
    FUZZ_CHECK(arena->total_bytes <= MEMORY_BYTES);
    if (status == STATUS_OK) {
        check_output(output);
        return status;
    }
    FUZZ_CHECK(status == STATUS_INVALID || status == STATUS_LIMIT);
    fuzz_check_sentence(err.text);
    FUZZ_CHECK(output->line > 0);
    FUZZ_CHECK(utf8_valid(output->message.text.bytes, output->message.text.length, NULL) ||
               output->raised);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct template *template;
    struct error err = {""};
    if (template_compile((const char *)data, size, &template, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return 0;
    }
    struct arena once, again;
    struct template_output output, second;
    enum status status = render(template, &once, &output);
    FUZZ_CHECK(render(template, &again, &second) == status);
    if (status == STATUS_OK) {
        FUZZ_CHECK(output.text.text.length == second.text.text.length);
        FUZZ_CHECK(
            !output.text.text.length ||
            !memcmp(output.text.text.bytes, second.text.text.bytes, output.text.text.length));
    }
    arena_deinit(&once);
    arena_deinit(&again);
    template_destroy(template);
    return 0;
}
