#include "common/language/chat/chat_request.h"

enum status chat_request_read(const struct json_value *json, struct chat_request *request,
                              struct error *err)
{
    if (json_kind(json) != JSON_OBJECT)
        return error_set(err, STATUS_INVALID, "a chat request must be an object, not %s",
                         json_kind_name(json));
    request->messages = json_find(json, "messages");
    request->tools = json_find(json, "tools");
    request->documents = json_find(json, "documents");
    request->kwargs = json_find(json, "chat_template_kwargs");
    TRY(json_get_optional_bool(json, "continue_final_message", &request->continue_final_message,
                               err));
    request->add_generation_prompt = !request->continue_final_message;
    return json_get_optional_bool(json, "add_generation_prompt", &request->add_generation_prompt,
                                  err);
}
