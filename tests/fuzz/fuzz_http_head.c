/* Input: a byte for the cuts, and bytes that may be a request's head. The cuts don't change the
 * result. A refusal is one sentence. In an accepted head every text is clean, the body has one
 * length, and no byte after the head is touched. */
#include "common/base/utf8.h"
#include "common/net/http/http_request.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static enum status scan_in_steps(struct fuzz_bytes bytes, size_t step, struct http_scan *scan,
                                 size_t *used, struct http_refusal *why)
{
    *scan = (struct http_scan){0};
    *used = 0;
    while (*used < bytes.size && !scan->whole) {
        size_t taken, piece = bytes.size - *used < step ? bytes.size - *used : step;
        enum status status =
            http_scan_take(scan, (const char *)bytes.data + *used, piece, &taken, why);
        *used += taken;
        if (status != STATUS_OK)
            return status;
        FUZZ_CHECK(taken == piece || scan->whole);
    }
    FUZZ_CHECK(scan->bytes == *used && *used <= HTTP_MAX_HEAD_BYTES);
    return STATUS_OK;
}

static void check_clean(const char *text)
{
    for (; *text; text++)
        FUZZ_CHECK((unsigned char)*text >= 0x20 || *text == '\t');
}

static void check_head(const struct http_head *head)
{
    FUZZ_CHECK(*head->path == '/' || !strcmp(head->path, "*"));
    FUZZ_CHECK(utf8_valid(head->path, strlen(head->path), NULL));
    check_clean(head->path);
    check_clean(head->query);
    FUZZ_CHECK(head->field_count <= HTTP_MAX_FIELDS);
    FUZZ_CHECK(!(head->chunked && (head->length || head->is_1_0)));
    int hosts = 0;
    for (size_t i = 0; i < head->field_count; i++) {
        const char *name = head->bytes + head->fields[i].name;
        FUZZ_CHECK(*name && !strpbrk(name, " \t:ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
        check_clean(head->bytes + head->fields[i].value);
        hosts += !strcmp(name, "host");
    }
    FUZZ_CHECK(hosts == 1 || (hosts == 0 && head->is_1_0));
}

static void read_head(struct fuzz_bytes bytes, size_t count)
{
    struct http_head head;
    struct http_refusal why;
    char *copy = malloc(count);
    FUZZ_CHECK(copy);
    memcpy(copy, bytes.data, count);
    if (http_head_read(copy, count, &head, &why) == STATUS_OK)
        check_head(&head);
    else
        fuzz_check_sentence(why.why.text);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    size_t step = fuzz_take_below(&input, 64) + 1;
    struct fuzz_bytes bytes = fuzz_take_rest(&input);
    struct http_scan whole, cut;
    struct http_refusal why, other;
    size_t used, other_used;
    enum status status = scan_in_steps(bytes, bytes.size + 1, &whole, &used, &why);
    FUZZ_CHECK(scan_in_steps(bytes, step, &cut, &other_used, &other) == status);
    FUZZ_CHECK(used == other_used);
    if (status != STATUS_OK) {
        FUZZ_CHECK(!strcmp(why.why.text, other.why.text) && why.status == other.status);
        fuzz_check_sentence(why.why.text);
    } else if (whole.whole) {
        read_head(bytes, used);
    }
    return 0;
}
