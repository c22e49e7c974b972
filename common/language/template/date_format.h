/* strftime in the C locale, of a time without a zone: what Python's datetime.strftime gives. "%-d",
 * "%_d", "%0d" and "%^a" as in glibc; what is no directive stays as it is. */
#ifndef BATON_LANGUAGE_TEMPLATE_DATE_FORMAT_H
#define BATON_LANGUAGE_TEMPLATE_DATE_FORMAT_H

#include "common/language/template/template.h"
#include "common/language/template/text_builder.h"

void date_format(struct text_builder *out, const char *format, size_t length,
                 const struct template_time *time);

#endif
