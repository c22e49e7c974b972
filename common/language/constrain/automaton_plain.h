/* Plain characters: no control character, no quote, no backslash. They are most of what tokens
 * spell, so a walk over tokens is spared where an automaton takes them anyway. Groups tell apart
 * which of them it takes. Pure. */
#ifndef BATON_LANGUAGE_CONSTRAIN_AUTOMATON_PLAIN_H
#define BATON_LANGUAGE_CONSTRAIN_AUTOMATON_PLAIN_H

#include "common/language/constrain/automaton.h"

static inline bool plain_byte(uint8_t byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\';
}

#define PLAIN_GROUPS      ((1ull << 63) - 1)
#define PLAIN_GROUP_LONG  62 /* characters of several bytes */
#define PLAIN_GROUP_OTHER 61

/* 0..62: each letter by itself, some others, and the rest together. */
static inline unsigned plain_group(uint8_t byte)
{
    if (byte >= 'a' && byte <= 'z')
        return byte - 'a';
    if (byte >= 'A' && byte <= 'Z')
        return 26 + byte - 'A';
    if (byte >= '0' && byte <= '9')
        return 52;
    if (byte >= 0x80)
        return PLAIN_GROUP_LONG;
    switch (byte) {
    case ' ': return 53;
    case '-': return 54;
    case '_': return 55;
    case '.': return 56;
    case ',': return 57;
    case ':': return 58;
    case '/': return 59;
    case '@': return 60;
    default: return PLAIN_GROUP_OTHER;
    }
}

/* Finds what each state takes of them (plain_*); everything else of the automaton is there. False:
 * that takes too many steps. */
bool automaton_find_plain(struct automaton *automaton, struct compile_steps *steps) WARN_UNUSED;

#endif
