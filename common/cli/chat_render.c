#include "common/cli/chat_render.h"

#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_template.h"

#include <stdio.h>

#define PATH_BYTES         4200
#define MAX_MESSAGES_BYTES (6 * CHAT_MAX_TRANSCRIPT_BYTES + (1u << 20)) /* with its escapes */

enum status chat_render_open(const char *folder, struct chat_render *render, struct error *err)
{
    char path[PATH_BYTES];
    struct chat_render open;
    TRY(chat_template_open(folder, &open.template, err));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    enum status status = tokenizer_open(path, &open.tokenizer, err);
    if (status != STATUS_OK)
        chat_template_close(open.template);
    else
        *render = open;
    return status;
}

void chat_render_close(struct chat_render *render)
{
    chat_template_close(render->template);
    tokenizer_close(render->tokenizer);
    *render = (struct chat_render){0};
}

enum status chat_render_prompt(const struct chat_render *render, const struct chat *chat,
                               struct token_ids *ids, struct error *err)
{
    struct json *json;
    struct str text;
    const struct json_limits limits = {.max_bytes = MAX_MESSAGES_BYTES, .max_depth = 8};
    str_init(&text, MAX_MESSAGES_BYTES);
    chat_messages(chat, &text);
    enum status status = json_parse(text.data, text.length, limits, &json, err);
    str_deinit(&text);
    if (status != STATUS_OK)
        return status;
    struct chat_request request = {.now = chat_time_now()};
    struct chat_prompt prompt;
    status = chat_request_read(json_root(json), &request, err);
    if (status == STATUS_OK)
        status = chat_template_render(render->template, &request, &prompt, NULL, err);
    if (status == STATUS_OK) {
        status = chat_encode(render->tokenizer, &prompt, ids, err);
        chat_prompt_deinit(&prompt);
    }
    json_destroy(json);
    return status;
}
