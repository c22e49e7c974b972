#include "router/doors/openai/openai_models.h"

#include "common/base/json/json_quote.h"

#include <inttypes.h>
#include <string.h>

void openai_model_json(struct str *out, const struct request_model *model, uint64_t created_s)
{
    str_add(out, "{\"id\":");
    json_quote(out, model->name, strlen(model->name));
    str_addf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"baton\",\"root\":",
             created_s);
    json_quote(out, model->name, strlen(model->name));
    str_addf(out, ",\"parent\":null,\"max_model_len\":%u}", model->context);
}

void openai_models_json(struct str *out, const struct request_model *const *models, size_t count,
                        uint64_t created_s)
{
    str_add(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        openai_model_json(out, models[i], created_s);
    }
    str_add(out, "]}\n");
}
