#include "common/base/json/json_large.h"

#include "common/base/json/json_text.h"

#include <json-c/json.h>
#include <math.h>
#include <string.h>

const char *json_large_number(const struct json_value *value, size_t *length)
{
    struct json_object *object = (struct json_object *)value;
    if (json_object_get_type(object) != json_type_double)
        return NULL;
    double number = json_object_get_double(object);
    const char *text = json_object_get_userdata(object); /* json_object_new_double_s */
    if (!text)                                           /* Infinity and NaN, which json-c takes */
        return NULL;
    size_t digits = strspn(text, "-0123456789");
    bool whole = fabs(number) >= 0x1p63 && !strcmp(text + digits, JSON_TEXT_BEYOND);
    if (!whole && isfinite(number))
        return NULL;
    *length = whole ? digits : strlen(text);
    return text;
}

bool json_is_beyond(const struct json_value *value)
{
    size_t length;
    const char *text = json_large_number(value, &length);
    return text && text[length];
}
