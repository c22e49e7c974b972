/* A part of a text, in bytes: [from, to). */
#ifndef BATON_LANGUAGE_TEXT_BYTE_RANGE_H
#define BATON_LANGUAGE_TEXT_BYTE_RANGE_H

#include <stddef.h>

struct byte_range {
    size_t from, to;
};

#endif
