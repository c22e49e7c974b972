#include "router/doors/openai/openai_tokens.h"

#include "common/base/json/json_quote.h"
#include "router/doors/openai/openai_request_parts.h"

/* The document, or NULL and a refusal. */
static struct json *read_object(const char *body, size_t length, size_t max_bytes,
                                struct openai_refusal *refusal)
{
    struct json_limits limits = {.max_bytes = max_bytes, .max_depth = OPENAI_MAX_DEPTH};
    struct json *json = NULL;
    struct error why;
    *refusal = (struct openai_refusal){.reason = REASON_NONE};
    if (json_parse(body, length, limits, &json, &why) != STATUS_OK)
        openai_refuse(refusal, REASON_MALFORMED, "", "the body: %s", why.text);
    else if (json_kind(json_root(json)) != JSON_OBJECT)
        openai_refuse(refusal, REASON_MALFORMED, "", "the body must be a JSON object, found %s",
                      json_kind_name(json_root(json)));
    return json;
}

bool openai_tokenize_read(struct openai_tokenize *tokenize, const char *body, size_t length,
                          size_t max_bytes, struct openai_refusal *refusal)
{
    *tokenize = (struct openai_tokenize){.model = "", .add_special_tokens = true};
    arena_init(&tokenize->arena, 64u << 10);
    tokenize->json = read_object(body, length, max_bytes, refusal);
    struct openai_fields fields = {tokenize->json ? json_root(tokenize->json) : NULL, "", refusal};
    openai_field_text(&fields, "model", &tokenize->model);
    openai_field_bool(&fields, "return_token_strs", &tokenize->token_strings);
    if (!openai_field_text(&fields, "prompt", &tokenize->prompt)) {
        tokenize->add_special_tokens = false; /* the template spells them out */
        tokenize->chat =
            (struct openai_request){.kind = OPENAI_CHAT, .add_generation_prompt = true};
        if (!openai_field(&fields, "messages"))
            openai_field_refuse(&fields, "prompt", REASON_MISSING_INPUT,
                                "is missing, and there are no messages");
        else
            openai_read_chat(&fields, &tokenize->chat);
    }
    openai_field_bool(&fields, "add_special_tokens", &tokenize->add_special_tokens);
    if (refusal->reason)
        openai_tokenize_deinit(tokenize);
    return !refusal->reason;
}

void openai_tokenize_deinit(struct openai_tokenize *tokenize)
{
    json_destroy(tokenize->json);
    arena_deinit(&tokenize->arena);
}

static void read_tokens(const struct openai_fields *fields, struct openai_detokenize *detokenize)
{
    const struct json_value *array;
    if (!openai_field_array(fields, "tokens", &array)) {
        openai_field_refuse(fields, "tokens", REASON_MISSING_INPUT, "is missing");
        return;
    }
    struct openai_ids ids;
    if (!openai_array_ids(fields, "tokens", REASON_INVALID_TOKEN_ID, array, &detokenize->arena,
                          &ids))
        return;
    detokenize->ids = ids.ids;
    detokenize->id_count = ids.count;
}

bool openai_detokenize_read(struct openai_detokenize *detokenize, const char *body, size_t length,
                            size_t max_bytes, struct openai_refusal *refusal)
{
    *detokenize = (struct openai_detokenize){.model = ""};
    arena_init(&detokenize->arena, 4 * max_bytes + (64u << 10));
    detokenize->json = read_object(body, length, max_bytes, refusal);
    struct openai_fields fields = {detokenize->json ? json_root(detokenize->json) : NULL, "",
                                   refusal};
    openai_field_text(&fields, "model", &detokenize->model);
    read_tokens(&fields, detokenize);
    if (refusal->reason)
        openai_detokenize_deinit(detokenize);
    return !refusal->reason;
}

void openai_detokenize_deinit(struct openai_detokenize *detokenize)
{
    json_destroy(detokenize->json);
    arena_deinit(&detokenize->arena);
}

void openai_tokenize_json(struct str *out, const uint32_t *ids, size_t count, uint32_t context,
                          const struct openai_token_strings *strings)
{
    str_addf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", count, context);
    for (size_t i = 0; i < count; i++)
        str_addf(out, "%s%u", i ? "," : "", ids[i]);
    str_add(out, "],\"token_strs\":");
    for (size_t i = 0; strings && i < count; i++) {
        size_t length = 0;
        const char *text = strings->text(strings->context, ids[i], &length);
        str_add(out, i ? "," : "[");
        json_quote(out, text ? text : "", text ? length : 0);
    }
    str_add(out, !strings ? "null}\n" : count ? "]}\n" : "[]}\n");
}

void openai_detokenize_json(struct str *out, const char *text, size_t length)
{
    str_add(out, "{\"prompt\":");
    json_quote(out, text, length);
    str_add(out, "}\n");
}
