/* Now, as templates are told it (strftime_now): local time. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_TIME_H
#define BATON_LANGUAGE_CHAT_CHAT_TIME_H

#include "common/language/template/template.h"

struct template_time chat_time_now(void);

#endif
