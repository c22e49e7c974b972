/* ASSERT ends the process at a programmer's error, with file, line and condition. It is always on.
 * The condition has no side effects, and never depends on bytes that came from outside. */
#ifndef BATON_BASE_ASSERT_H
#define BATON_BASE_ASSERT_H

_Noreturn void assert_failed(const char *file, int line, const char *condition);

#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            assert_failed(__FILE__, __LINE__, #condition);                                         \
    } while (0)

#endif
